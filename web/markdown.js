// Markdown to DOM nodes.
//
// The text comes from a model and may be hostile, so nothing here makes HTML of it: every piece is a
// node made by name with text inside. Links are kept only if they lead to http, https or mailto;
// images are shown as links, since loading one would tell its owner that the message was read.
//
//     renderMarkdown(element, text)    draws the text; when called again with a longer text, only the
//                                      blocks that changed are made anew, so streams stay cheap
//
// Scanners instead of regular expressions with nested repeats: no text makes this slow. Formulas
// ($..$, $$..$$, \(..\), \[..\]) are found before anything else, so that no mark in them is taken for
// one of Markdown; one that math.js does not know stays as it was written.

import { copyText, el, icon } from './dom.js';
import { highlight } from './highlight.js';
import { drawMath, MAX_CHARS } from './math.js';

const MAX_DEPTH = 12; // of quotes and lists; deeper ones are shown as text

// ---- Blocks ------------------------------------------------------------------------------------

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

const isBlank = (line) => line.trim() === '';

// Where a paragraph has to end.
function interrupts(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return item !== null && item[4] !== '' && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]));
}

const MATH_BEGIN = /^\s*(\$\$|\\\[|\\begin\{(?:align|alignat|gather|equation|multline|eqnarray|flalign)\*?\})/;
const MATH_LINES = 200;

// A formula that has lines to itself, from line `at`: {source, rest, to}, or null. TeX allows no empty line in it.
// `seen` says up to which line there is no end of a kind, so that many beginnings are read once.
function scanMathBlock(lines, at, seen) {
  const begin = MATH_BEGIN.exec(lines[at]);
  if (!begin) return null;
  const isBare = begin[1].startsWith('\\begin');
  const close = isBare ? begin[1].replace('begin', 'end') : begin[1] === '$$' ? '$$' : '\\]';
  let i = Math.max(at, seen.get(close) || 0);
  for (; i < lines.length && i < at + MATH_LINES && !isBlank(lines[i]); i++) {
    const end = lines[i].indexOf(close, i === at ? begin[0].length : 0);
    if (end < 0) continue;
    // Only a mark may follow; else it is a formula in a paragraph.
    const rest = lines[i].slice(end + close.length).trim();
    if (rest.length > 1 || /[^.,;:]/.test(rest)) return null;
    const text = [...lines.slice(at, i), lines[i].slice(0, end)].join('\n').slice(begin[0].length);
    if (text.trim() === '') return null;
    return { source: isBare ? begin[1] + text + close : text.trim(), rest, to: i + 1 };
  }
  seen.set(close, i);
  return null;
}

// Splits lines into blocks: {kind, from, to} and what the kind needs. Lines from..to are its source.
function splitBlocks(lines) {
  const blocks = [];
  let i = 0;
  let rank = 2; // of the last heading: that of a message is of the second level, and no level is left out
  const seen = new Map(); // for scanMathBlock()
  while (i < lines.length) {
    const line = lines[i];
    if (isBlank(line)) {
      i++;
      continue;
    }
    const from = i;
    let m;
    if ((m = FENCE.exec(line))) {
      const indent = m[1].length;
      const mark = m[2];
      const code = [];
      i++;
      let closed = false;
      while (i < lines.length) {
        const t = lines[i].trim();
        if (t.length >= mark.length && t === mark[0].repeat(t.length)) {
          closed = true;
          i++;
          break;
        }
        code.push(lines[i].slice(0, indent).trim() === '' ? lines[i].slice(indent) : lines[i]);
        i++;
      }
      blocks.push({ kind: 'code', from, to: i, language: m[3].trim().split(/\s+/)[0], code, closed });
    } else if ((m = HEADING.exec(line))) {
      i++;
      rank = Math.min(6, rank + 1, m[1].length + 2);
      blocks.push({ kind: 'heading', from, to: i, level: m[1].length, rank, text: (m[2] || '').replace(/\s#+\s*$/, '') });
    } else if ((m = scanMathBlock(lines, i, seen))) {
      i = m.to;
      blocks.push({ kind: 'math', from, to: i, source: m.source, rest: m.rest, text: lines.slice(from, i).join('\n') });
    } else if (RULE.test(line)) {
      i++;
      blocks.push({ kind: 'rule', from, to: i });
    } else if (QUOTE.test(line)) {
      const inner = [];
      while (i < lines.length && !isBlank(lines[i])) {
        m = QUOTE.exec(lines[i]);
        if (!m && interrupts(lines[i])) break;
        inner.push(m ? m[1] : lines[i]);
        i++;
      }
      blocks.push({ kind: 'quote', from, to: i, lines: inner });
    } else if (ITEM.test(line)) {
      i = splitList(lines, i, blocks);
    } else if (i + 1 < lines.length && line.includes('|') && TABLE_RULE.test(lines[i + 1]) && lines[i + 1].includes('-')) {
      i += 2;
      while (i < lines.length && !isBlank(lines[i]) && lines[i].includes('|')) i++;
      blocks.push({ kind: 'table', from, to: i, lines: lines.slice(from, i) });
    } else {
      i++;
      while (i < lines.length && !isBlank(lines[i]) && !interrupts(lines[i]) && !scanMathBlock(lines, i, seen)) i++;
      blocks.push({ kind: 'paragraph', from, to: i, text: lines.slice(from, i).join('\n') });
    }
  }
  return blocks;
}

// A list: items of one kind, each with the lines that are indented below it.
function splitList(lines, start, blocks) {
  const first = ITEM.exec(lines[start]);
  const ordered = /\d/.test(first[2]);
  const base = first[1].length;
  const items = [];
  let loose = false;
  let i = start;
  while (i < lines.length) {
    const m = ITEM.exec(lines[i]);
    if (!m || m[1].length > base + 1 || m[1].length < base || /\d/.test(m[2]) !== ordered || RULE.test(lines[i])) break;
    // Where the text begins is where lines below it must begin to belong to it.
    const indent = m[1].length + m[2].length + (m[3].length > 4 || m[4] === '' ? 1 : m[3].length);
    const inner = [m[4]];
    i++;
    while (i < lines.length) {
      if (isBlank(lines[i])) {
        const next = lines[i + 1];
        if (next === undefined || isBlank(next)) {
          if (next === undefined) i++;
          break;
        }
        const depth = next.length - next.trimStart().length;
        if (depth < Math.min(indent, base + 2)) break;
        inner.push('');
        loose = true;
        i++;
        continue;
      }
      const depth = lines[i].length - lines[i].trimStart().length;
      if (depth >= indent) inner.push(lines[i].slice(indent));
      else if (depth >= base + 2) inner.push(lines[i].trimStart());
      else if (ITEM.test(lines[i]) || interrupts(lines[i])) break;
      else inner.push(lines[i].trimStart());
      i++;
    }
    items.push(inner);
    // A blank line between two items.
    if (i < lines.length && isBlank(lines[i])) {
      let j = i;
      while (j < lines.length && isBlank(lines[j])) j++;
      const next = j < lines.length ? ITEM.exec(lines[j]) : null;
      if (!next || next[1].length > base + 1 || next[1].length < base || /\d/.test(next[2]) !== ordered) break;
      loose = true;
      i = j;
    }
  }
  blocks.push({ kind: 'list', from: start, to: i, ordered, number: ordered ? parseInt(first[2], 10) : 1, items, loose });
  return i;
}

function drawBlocks(lines, depth) {
  return splitBlocks(lines).map((block) => drawBlock(block, depth));
}

function drawBlock(block, depth) {
  switch (block.kind) {
    case 'code':
      if (block.language === 'math' && block.closed) return drawFormula(block.code.join('\n'), block.code.join('\n'), true);
      return drawCode(block.code.join('\n'), block.language, block.closed);
    case 'math':
      return drawFormula(block.source, block.text, true, block.rest);
    case 'heading':
      return el(`h${block.rank}`, { class: `h${block.level}` }, ...drawInline(block.text));
    case 'rule':
      return el('hr');
    case 'quote':
      return el('blockquote', {}, ...drawInner(block.lines, depth));
    case 'list': {
      const list = el(block.ordered ? 'ol' : 'ul', block.ordered && block.number !== 1 ? { start: String(block.number) } : {});
      for (const lines of block.items) list.append(drawItem(lines, block.loose, depth));
      return list;
    }
    case 'table':
      return drawTable(block.lines);
    default:
      return el('p', {}, ...drawInline(block.text));
  }
}

function drawInner(lines, depth) {
  if (depth >= MAX_DEPTH) return [document.createTextNode(lines.join('\n'))];
  return drawBlocks(lines, depth + 1);
}

function drawItem(lines, loose, depth) {
  const item = el('li');
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) {
    lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
    item.className = 'task';
    item.append(el('input', { type: 'checkbox', disabled: true, checked: task[1] !== ' ', 'aria-label': task[1] === ' ' ? 'open' : 'done' }));
  }
  const parts = drawInner(lines, depth);
  for (const part of parts) {
    if (!loose && part.nodeName === 'P') item.append(...part.childNodes);
    else item.append(part);
  }
  return item;
}

function splitRow(line) {
  const cells = [];
  let cell = '';
  let inCode = false;
  const text = line.trim().replace(/^\|/, '');
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '\\' && text[i + 1] === '|') {
      cell += '|';
      i++;
    } else if (c === '|' && !inCode) {
      cells.push(cell.trim());
      cell = '';
    } else {
      if (c === '`') inCode = !inCode;
      cell += c;
    }
  }
  if (cell.trim() !== '') cells.push(cell.trim());
  return cells;
}

function drawTable(lines) {
  const align = splitRow(lines[1]).map((c) => (/^:-+:$/.test(c) ? 'center' : /-:$/.test(c) ? 'right' : 'left'));
  const row = (line, name) => {
    const cells = splitRow(line).slice(0, align.length);
    while (cells.length < align.length) cells.push('');
    return el('tr', {}, ...cells.map((c, i) => el(c === '' ? 'td' : name, { class: `to-${align[i]}` }, ...drawInline(c))));
  };
  return el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' },
    el('table', {}, el('thead', {}, row(lines[0], 'th')), el('tbody', {}, ...lines.slice(2).map((l) => row(l, 'td')))));
}

function drawCode(code, language, closed) {
  const body = el('code', {}, ...highlight(code, language));
  const copy = el('button', { class: 'copy', type: 'button', 'aria-label': 'Copy the code' }, icon('copy'), el('span', { class: 'label' }, 'Copy'));
  copy.addEventListener('click', () => copyText(code, copy));
  return el('div', { class: closed ? 'code' : 'code open' },
    el('div', { class: 'code-top' }, el('span', { class: 'language' }, language.slice(0, 24) || 'text'), copy),
    el('pre', { tabindex: '0' }, body));
}

// ---- Formulas ----------------------------------------------------------------------------------

// A formula, or what was written if it is not known. `rest`: a mark behind it.
function drawFormula(source, text, isDisplay, rest = '') {
  const math = drawMath(source, isDisplay);
  if (!math) return el('span', { class: isDisplay ? 'math-source display' : 'math-source' }, text);
  if (!isDisplay) return math;
  if (rest) math.append(document.createElementNS(math.namespaceURI, 'mtext'));
  if (rest) math.lastChild.append(rest);
  return el('span', { class: 'math', tabindex: '0', role: 'group', 'aria-label': 'Formula' }, math);
}

// A formula in a line, from `at`: {source, isDisplay, end}, or null. `seen` says up to where the line is
// known not to have an end of a kind, so that a line of many beginnings is read once.
function scanMath(s, at, seen) {
  const two = s.slice(at, at + 2);
  const close = two === '$$' ? '$$' : two === '\\(' ? '\\)' : two === '\\[' ? '\\]' : '$';
  const from = at + (close === '$' ? 1 : 2);
  if (close === '$' && (/[\s$]/.test(s[from] || ' ') || /[\p{L}\p{N}\\]/u.test(s[at - 1] || ''))) return null;
  const until = Math.min(s.length, from + MAX_CHARS);
  for (let i = Math.max(from, seen.get(close) || 0); i < until; i++) {
    if (s.startsWith(close, i) && i > from) {
      // A dollar that ends a formula has no space before and no word behind: prices and shell variables are none.
      if (close === '$' && (/\s/.test(s[i - 1]) || /[\p{L}\p{N}]/u.test(s[i + 1] || ''))) return null;
      return { source: s.slice(from, i).trim(), isDisplay: close === '$$' || close === '\\]', end: i + close.length };
    }
    if (s[i] === '\\') i++;
  }
  seen.set(close, Math.max(until, seen.get(close) || 0));
  return null;
}

// ---- Inline ------------------------------------------------------------------------------------

const ESCAPABLE = '\\`*_{}[]()#+-.!|~<>"\'$%&,/:;=?@^';

export function safeLink(href) {
  const trimmed = href.trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(trimmed)) return null;
  try {
    const url = new URL(trimmed);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function drawLink(href, children) {
  const safe = safeLink(href);
  if (!safe) return el('span', { class: 'no-link', title: href }, ...children);
  return el('a', { href: safe, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children);
}

// [text](target "title") from `at`, which is on the bracket; null if it is none.
function scanLink(s, at) {
  let depth = 0;
  let i = at;
  for (; i < s.length && i < at + 2000; i++) {
    if (s[i] === '\\') i++;
    else if (s[i] === '[') depth++;
    else if (s[i] === ']' && --depth === 0) break;
  }
  if (s[i] !== ']' || s[i + 1] !== '(') return null;
  const label = s.slice(at + 1, i);
  let j = i + 2;
  let parens = 1;
  for (; j < s.length && j < i + 4000 && s[j] !== '\n'; j++) {
    if (s[j] === '(') parens++;
    else if (s[j] === ')' && --parens === 0) break;
  }
  if (s[j] !== ')') return null;
  const target = s.slice(i + 2, j).trim().replace(/\s+["'(].*$/, '').replace(/^<(.*)>$/, '$1');
  return { label, target, end: j + 1 };
}

const isSpace = (c) => c === undefined || /\s/.test(c);
const isMark = (c) => c !== undefined && /[\p{P}\p{S}]/u.test(c);

// Pieces of a line: nodes, and runs of * _ ~ that may begin or end emphasis.
function scanInline(s, level) {
  const out = [];
  let plain = '';
  const missing = new Set(); // lengths of ` that do not come again
  const seen = new Map(); // for scanMath()
  const flush = () => {
    if (plain) out.push({ node: document.createTextNode(plain) });
    plain = '';
  };
  for (let i = 0; i < s.length;) {
    const c = s[i];
    if (c === '$' || (c === '\\' && (s[i + 1] === '(' || s[i + 1] === '['))) {
      const math = scanMath(s, i, seen);
      if (math) {
        flush();
        out.push({ node: drawFormula(math.source, s.slice(i, math.end), math.isDisplay) });
        i = math.end;
        continue;
      }
    }
    if (c === '\\' && i + 1 < s.length && ESCAPABLE.includes(s[i + 1])) {
      plain += s[i + 1];
      i += 2;
    } else if (c === '`') {
      let n = 1;
      while (s[i + n] === '`') n++;
      let end = -1;
      if (!missing.has(n)) {
        for (let j = i + n; j < s.length;) {
          if (s[j] !== '`') {
            j++;
            continue;
          }
          let m = 1;
          while (s[j + m] === '`') m++;
          if (m === n) {
            end = j;
            break;
          }
          j += m;
        }
        if (end < 0) missing.add(n);
      }
      if (end < 0) {
        plain += s.slice(i, i + n);
        i += n;
        continue;
      }
      flush();
      let code = s.slice(i + n, end).replace(/\n/g, ' ');
      if (code.length > 2 && code[0] === ' ' && code.at(-1) === ' ' && code.trim()) code = code.slice(1, -1);
      out.push({ node: el('code', {}, code) });
      i = end + n;
    } else if ((c === '[' || (c === '!' && s[i + 1] === '[')) && level < 4) {
      const link = scanLink(s, c === '!' ? i + 1 : i);
      if (!link) {
        plain += c;
        i++;
        continue;
      }
      flush();
      const inner = c === '!' ? [document.createTextNode(`image: ${link.label || link.target}`)] : drawInline(link.label, level + 1);
      out.push({ node: drawLink(link.target, inner) });
      i = link.end;
    } else if (c === '<' && /^<(?:https?:\/\/|mailto:)[^\s<>]{1,2000}>/i.test(s.slice(i, i + 2010))) {
      flush();
      const end = s.indexOf('>', i);
      const href = s.slice(i + 1, end);
      out.push({ node: drawLink(href, [document.createTextNode(href)]) });
      i = end + 1;
    } else if (c === 'h' && (i === 0 || !/[\w/]/.test(s[i - 1])) && /^https?:\/\//.test(s.slice(i, i + 8))) {
      let end = i;
      while (end < s.length && !/[\s<>"`|]/.test(s[end])) end++;
      while (/[.,;:!?'*_~]/.test(s[end - 1])) end--;
      if (s[end - 1] === ')' && !s.slice(i, end).includes('(')) end--;
      flush();
      const href = s.slice(i, end);
      out.push({ node: drawLink(href, [document.createTextNode(href)]) });
      i = end;
    } else if (c === '*' || c === '_' || (c === '~' && s[i + 1] === '~')) {
      let n = 1;
      while (s[i + n] === c) n++;
      const before = s[i - 1];
      const after = s[i + n];
      const left = !isSpace(after) && (!isMark(after) || isSpace(before) || isMark(before));
      const right = !isSpace(before) && (!isMark(before) || isSpace(after) || isMark(after));
      flush();
      out.push({
        mark: c, n,
        opens: c === '_' ? left && (!right || isMark(before)) : left,
        closes: c === '_' ? right && (!left || isMark(after)) : right,
      });
      i += n;
    } else if (c === '\n') {
      flush();
      out.push({ node: el('br') });
      i++;
    } else {
      plain += c;
      i++;
    }
  }
  flush();
  return out;
}

// Pairs up the runs, innermost first, as CommonMark does it.
export function drawInline(s, level = 0) {
  const pieces = scanInline(s, level);
  const out = []; // nodes, and open runs {mark, n}
  for (const piece of pieces) {
    if (piece.node) {
      out.push(piece);
      continue;
    }
    let { n } = piece;
    while (piece.closes && n > 0) {
      let k = out.length - 1;
      const floor = Math.max(0, k - 2000);
      while (k >= floor && !(out[k].mark === piece.mark && out[k].opens && out[k].n > 0)) k--;
      if (k < floor) break;
      const opener = out[k];
      const strike = piece.mark === '~';
      const use = strike ? 2 : opener.n >= 2 && n >= 2 ? 2 : 1;
      if (strike && (opener.n < 2 || n < 2)) break;
      const inner = out.splice(k + 1).map(asNode);
      const node = el(strike ? 'del' : use === 2 ? 'strong' : 'em', {}, ...inner);
      opener.n -= use;
      n -= use;
      if (opener.n === 0) out.pop();
      out.push({ node });
    }
    if (n > 0) out.push({ ...piece, n });
  }
  return out.map(asNode);
}

const asNode = (piece) => piece.node || document.createTextNode(piece.mark.repeat(piece.n));

// ---- The document ------------------------------------------------------------------------------

const drawn = new WeakMap(); // element -> sources of the blocks it shows

export function renderMarkdown(root, text) {
  const lines = text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n');
  const blocks = splitBlocks(lines);
  const sources = blocks.map((b) => lines.slice(b.from, b.to).join('\n') + (b.kind === 'code' && b.closed ? '\0' : ''));
  const old = drawn.get(root) || [];
  let same = 0;
  while (same < sources.length && same < old.length && sources[same] === old[same]) same++;
  while (root.children.length > same) root.lastElementChild.remove();
  for (let i = same; i < blocks.length; i++) root.append(drawBlock(blocks[i], 0));
  drawn.set(root, sources);
}
