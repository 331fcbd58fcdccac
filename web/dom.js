// Elements made by name, with text inside: nothing in this page makes HTML of a text.

export function el(name, props = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'class') node.className = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children);
  return node;
}

export function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

// Puts a text into the clipboard; `button` was pressed for it.
export async function toClipboard(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not a secure context (plain http on another host): the old way.
    const area = el('textarea', { class: 'sr' });
    area.value = text;
    (button.closest('dialog') || document.body).append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.focus();
  }
}

export async function copyText(text, button) {
  await toClipboard(text, button);
  const label = button.querySelector('.label');
  button.querySelector('use').setAttribute('href', '#i-check');
  if (label) label.textContent = 'Copied';
  setTimeout(() => {
    button.querySelector('use').setAttribute('href', '#i-copy');
    if (label) label.textContent = 'Copy';
  }, 1400);
}
