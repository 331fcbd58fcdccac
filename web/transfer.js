// Conversations out of this browser and into it: Markdown for people, JSON for this page.

import { withFiles } from './files.js';
import { imagesOf } from './images.js';
import { state, titleOf } from './state.js';
import { callsText } from './tools.js';
import { mergeInto, readConversation, shownPath, stamp } from './tree.js';
import { el } from './dom.js';

const MARK = 'lace-conversations';
const MAX_BYTES = 256 << 20;

// A name that every file system takes, and nothing else changed in it.
export function fileName(title, ending) {
  const name = title.replace(/[\u0000-\u001f\u007f/\\:*?"<>|]/g, ' ').replace(/\s+/g, ' ').replace(/^[. ]+|[. ]+$/g, '').slice(0, 80).trim();
  return `${name || 'conversation'}.${ending}`;
}

function download(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function saveMarkdown(conversation) {
  let text = `# ${titleOf(conversation)}\n`;
  let end = ''; // images are far behind the text: a link definition each
  let images = 0;
  if (conversation.system) text += `\n> ${conversation.system.replace(/\n/g, '\n> ')}\n`;
  for (const n of shownPath(conversation)) {
    const thoughts = n.reasoning && `<details><summary>Thoughts</summary>\n\n${n.reasoning}\n\n</details>`;
    const shown = imagesOf(n).map((file) => {
      images++;
      end += `\n[image-${images}]: ${file.image}\n`;
      return `![${file.name.replace(/[[\]\\]/g, ' ')}][image-${images}]`;
    });
    const parts = [thoughts, ...shown, withFiles(n), callsText(n)].filter(Boolean);
    text += `\n## ${n.role === 'user' ? 'You' : n.meta?.model || 'Answer'}\n\n${parts.join('\n\n')}\n`;
  }
  text += end;
  download(text, 'text/markdown', fileName(titleOf(conversation), 'md'));
}

export function saveJson(conversations, name) {
  const text = JSON.stringify({ format: MARK, version: 1, conversations }, null, 1);
  download(text, 'application/json', fileName(name, 'json'));
}

// Reads a file that saveJson() wrote and adds what is in it: {added, merged, ids}. Nothing here is overwritten.
export async function loadJson(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES >> 20} MB.`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch (error) {
    throw new Error(`${file.name} is not JSON: ${error.message}`);
  }
  if (value?.format !== MARK || !Array.isArray(value.conversations)) throw new Error(`${file.name} has no conversations of this page.`);
  if (value.version !== 1) throw new Error(`${file.name} is of version ${value.version}; this page reads version 1.`);
  const read = value.conversations.map(readConversation);
  const broken = read.filter((c) => c === null).length;
  if (broken > 0) throw new Error(`${file.name}: ${broken} of ${read.length} conversations are damaged; nothing was loaded.`);
  let added = 0;
  for (const c of read) {
    const mine = state.conversations.find((other) => other.id === c.id);
    if (!mine) {
      state.conversations.push(c);
      added++;
      continue;
    }
    // Loading brings back what was deleted since.
    for (const id of Object.keys(mine.removed)) if (c.nodes[id]) c.nodes[id].at = stamp();
    mergeInto(mine, c);
  }
  return { added, merged: read.length - added, ids: read.map((c) => c.id) };
}
