// Images that go along with a message: made small enough to be sent, shown as thumbnails.
//
// Servers read PNG, JPEG and WebP. A file of these kinds goes as it is, unless it is large or has Exif data: a camera
// turns its pictures there, and says where they were taken. All others are drawn anew.

import { el } from './dom.js';

const SENT_AS_THEY_ARE = ['image/png', 'image/jpeg', 'image/webp'];
const MAX_SIDE = 2048; // pixels; vision towers look at fewer
const MAX_BYTES = 2 << 20; // of what is sent
const MAX_FILE = 64 << 20; // of what is read

// An SVG is a text.
export const isImage = (file) => file.type.startsWith('image/') && file.type !== 'image/svg+xml';

const hasExif = (bytes) => new TextDecoder('latin1').decode(bytes.subarray(0, 65536)).includes('Exif\0\0');

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

async function drawAnew(picture, type) {
  const scale = Math.min(1, MAX_SIDE / Math.max(picture.width, picture.height));
  const canvas = el('canvas', { width: Math.max(1, Math.round(picture.width * scale)), height: Math.max(1, Math.round(picture.height * scale)) });
  const brush = canvas.getContext('2d');
  const encode = (kind) => new Promise((resolve) => canvas.toBlob(resolve, kind, 0.92));
  brush.drawImage(picture, 0, 0, canvas.width, canvas.height);
  let blob = type === 'image/jpeg' ? null : await encode('image/png');
  if (!blob || blob.size > MAX_BYTES) {
    // JPEG knows no transparency.
    brush.globalCompositeOperation = 'destination-over';
    brush.fillStyle = '#fff';
    brush.fillRect(0, 0, canvas.width, canvas.height);
    blob = await encode('image/jpeg');
  }
  return { blob, width: canvas.width, height: canvas.height };
}

// {name, image, width, height}, or an Error that says why it is none.
export async function readImage(file) {
  const name = file.name || 'image';
  if (file.size > MAX_FILE) throw new Error(`${name} is larger than ${MAX_FILE >> 20} MB.`);
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`${name} is not an image that this browser can read.`);
  }
  const { width, height } = picture;
  const isFit = SENT_AS_THEY_ARE.includes(file.type) && file.size <= MAX_BYTES && Math.max(width, height) <= MAX_SIDE
    && !hasExif(new Uint8Array(await file.arrayBuffer()));
  const sent = isFit ? { blob: file, width, height } : await drawAnew(picture, file.type);
  picture.close();
  return { name, image: await dataUrl(sent.blob), width: sent.width, height: sent.height };
}

export const imagesOf = (node) => node.files.filter((file) => file.image);

// A message's content as OpenAI's API has it: text alone, or parts, images first.
export function contentOf(text, images) {
  if (images.length === 0) return text;
  const parts = images.map(({ image }) => ({ type: 'image_url', image_url: { url: image } }));
  return text === '' ? parts : [...parts, { type: 'text', text }];
}

export function picture(file) {
  return el('img', { src: file.image, alt: file.name, width: file.width, height: file.height });
}
