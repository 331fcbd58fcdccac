// Files that go along with a message: chosen, dropped or pasted. Texts are shown as chips and sent as text; images
// (images.js) as thumbnails.

import { el, icon } from './dom.js';
import { isImage, picture, readImage } from './images.js';

const MAX_BYTES = 4 << 20; // of one file; far more than a context takes

export function fileSize(text) {
  const bytes = new Blob([text]).size;
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

// A message with its texts, as the model reads it. The fence is longer than any in the file.
export function withFiles(node) {
  const parts = node.files.filter((file) => !file.image).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`{3,}/g) || []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `File: ${name}\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
  });
  return [...parts, node.content].filter((part) => part !== '').join('\n\n');
}

// The text of a file, or an Error that says why it has none.
export async function readText(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES >> 20} MB.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isWide = bytes.length > 1 && ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff));
  if (!isWide && bytes.subarray(0, 8192).includes(0)) throw new Error(`${file.name} is not a text file.`);
  try {
    const decoder = new TextDecoder(!isWide ? 'utf-8' : bytes[0] === 0xff ? 'utf-16le' : 'utf-16be', { fatal: true });
    return decoder.decode(bytes).replace(/\r\n?/g, '\n');
  } catch {
    throw new Error(`${file.name} is not a text file in UTF-8 or UTF-16.`);
  }
}

export function chip(file, onOpen, onRemove) {
  const open = file.image
    ? el('button', { class: 'thumb-open', type: 'button', 'aria-label': `Image ${file.name}`, title: `${file.name}, ${file.width} × ${file.height}`, onclick: onOpen }, picture(file))
    : el('button', { class: 'chip-open', type: 'button', title: 'Show this file', onclick: onOpen },
      icon('file'), el('span', { class: 'chip-name' }, file.name), el('span', { class: 'chip-size' }, fileSize(file.text)));
  const remove = onRemove && el('button', { class: 'chip-remove', type: 'button', 'aria-label': `Remove ${file.name}`, title: 'Remove', onclick: onRemove }, icon('close'));
  return el('span', { class: file.image ? 'thumb' : 'chip' }, open, ...(remove ? [remove] : []));
}

// The files of the message that is being written, drawn into `row`. onChange() is called after each change.
// whyNoImages(): '' if the model may be sent images, or a sentence that says why not.
export function createAttachments(row, { onOpen, onChange, onError, whyNoImages }) {
  let files = [];

  function draw() {
    row.replaceChildren(...files.map((f) => chip(f, () => onOpen(f), () => {
      files = files.filter((other) => other !== f);
      draw();
      onChange();
    })));
    row.hidden = files.length === 0;
  }

  return {
    list: () => files,
    set(list) {
      files = list;
      draw();
    },
    async add(list) {
      const errors = [];
      for (const file of list) {
        try {
          if (isImage(file) && whyNoImages()) throw new Error(`${file.name || 'The image'} was not attached. ${whyNoImages()}`);
          const read = isImage(file) ? await readImage(file) : { name: file.name || 'pasted.txt', text: await readText(file) };
          files = [...files, { ...read, name: read.name.replace(/\p{Cc}/gu, ' ') }];
        } catch (error) {
          errors.push(error.message);
        }
      }
      draw();
      onChange();
      onError(errors.join(' '));
    },
  };
}
