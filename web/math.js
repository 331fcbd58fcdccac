// LaTeX formulas to MathML, which browsers draw themselves.
//
//     drawMath(source, isDisplay)    a <math> element, or null if something in it is not known
//
// The source comes from a model and may be hostile: nodes are made by name with text inside, no
// attribute has a text of the source but a checked colour or length, and the length, the depth and the
// number of nodes are bounded. What is not known makes the whole formula null, and its source is shown.

import {
  ACCENTS, ALPHABETS, ENVIRONMENTS, FENCES, FONTS, FUNCTIONS, INTEGRALS, LARGE, LIMITS, LONG_ARROWS, OPERATORS, SLANTED, SPACES, TEXTS, UNDER, UPRIGHT,
} from './math_symbols.js';

const MATHML = 'http://www.w3.org/1998/Math/MathML';
export const MAX_CHARS = 8000;
const MAX_DEPTH = 48;
const MAX_NODES = 4000;

class Unknown extends Error {}

function m(name, attributes, ...children) {
  const node = document.createElementNS(MATHML, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const row = (nodes) => (nodes.length === 1 ? nodes[0] : m('mrow', null, ...nodes));
const space = (em) => m('mspace', { width: `${em}em` });
const isLetter = (c) => /^\p{L}\p{M}*$/u.test(c);

// A letter or digit in another alphabet, as Unicode has them.
function inFont(c, font) {
  const alphabet = ALPHABETS[font];
  if (!alphabet) return c;
  if (alphabet.but?.[c]) return alphabet.but[c];
  const at = c.codePointAt(0);
  const from = (first, base) => String.fromCodePoint(base + at - first.charCodeAt(0));
  if (c >= 'A' && c <= 'Z') return from('A', alphabet.A);
  if (c >= 'a' && c <= 'z') return from('a', alphabet.a);
  if (c >= '0' && c <= '9' && alphabet[0]) return from('0', alphabet[0]);
  if (alphabet.greek && c >= 'Α' && c <= 'Ω') return from('Α', alphabet.greek);
  if (alphabet.greek && c >= 'α' && c <= 'ω') return from('α', alphabet.greek + 26);
  return c;
}

function operator(c, attributes) {
  return m('mo', attributes, c);
}

const isBar = (c) => c === '|' || c === '‖';

// A fence that does not grow.
function plainFence(c) {
  return operator(c, isBar(c) || c === '\\' || c === '/' ? { stretchy: 'false', lspace: '0', rspace: '0' } : { stretchy: 'false' });
}

// A length of TeX in em, or null.
function readLength(text) {
  const found = /^\s*(-?\d{0,4}(?:\.\d{0,4})?)\s*(em|ex|pt|px|mu|cm|mm|in)\s*$/.exec(text);
  if (!found || found[1] === '' || Number.isNaN(Number(found[1]))) return null;
  const em = { em: 1, ex: 0.45, pt: 0.1, px: 0.0625, mu: 1 / 18, cm: 2.8, mm: 0.28, in: 7.2 }[found[2]];
  return Math.max(-4, Math.min(20, Number(found[1]) * em));
}

// An atom is what stands for one thing in a row:
//     {node, limits, isFunction}    limits: "movable", "fixed" or "beside": where ^ and _ go
class Parser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.depth = 0;
    this.left = MAX_NODES;
    this.font = null;
  }

  // ---- Words ----

  skipSpace() {
    while (/\s/.test(this.source[this.at] || '')) this.at++;
  }

  // The next word without taking it: "\name", one character, or "" at the end.
  peek() {
    this.skipSpace();
    const c = this.source[this.at];
    if (c === undefined) return '';
    if (c !== '\\') return String.fromCodePoint(this.source.codePointAt(this.at));
    let end = this.at + 1;
    while (/[A-Za-z]/.test(this.source[end] || '')) end++;
    return this.source.slice(this.at, Math.max(end, this.at + 2));
  }

  take() {
    const word = this.peek();
    this.at += word.length;
    if (--this.left < 0) throw new Unknown('too long');
    return word;
  }

  takeIf(word) {
    if (this.peek() !== word) return false;
    this.take();
    return true;
  }

  expect(word) {
    if (!this.takeIf(word)) throw new Unknown(`${word} is missing`);
  }

  // The text of a group as it is: {...}.
  takeText() {
    this.expect('{');
    let depth = 1;
    const begin = this.at;
    for (; this.at < this.source.length; this.at++) {
      const c = this.source[this.at];
      if (c === '\\') this.at++;
      else if (c === '{') depth++;
      else if (c === '}' && --depth === 0) {
        this.at++;
        return this.source.slice(begin, this.at - 1);
      }
    }
    throw new Unknown('a group has no end');
  }

  // ---- Rows ----

  isEnd(word, close) {
    return word === '' || word === '}' || word === '&' || word === '\\\\' || word === '\\cr' || word === '\\right' || word === '\\end' || word === close;
  }

  // Atoms until something that ends a row, which is left there.
  nodes(close) {
    if (++this.depth > MAX_DEPTH) throw new Unknown('too deep');
    const font = this.font;
    const out = [];
    let last = null;
    for (let word = this.peek(); !this.isEnd(word, close); word = this.peek()) {
      const name = word[0] === '\\' ? word.slice(1) : '';
      if (name === 'over' || name === 'atop' || name === 'choose') {
        this.take();
        const fraction = m('mfrac', name === 'over' ? null : { linethickness: '0' }, row(out.splice(0)), row(this.nodes(close)));
        out.push(...(name === 'choose' ? [operator('('), fraction, operator(')')] : [fraction]));
        break;
      }
      const atom = this.scripted();
      if (!atom) continue;
      // Names of functions stand a little apart from what they belong to.
      if (atom.isFunction && last && !last.isFunction && /^(?:mi|mn|mfrac|msup|msub|msubsup|msqrt|mrow)$/.test(last.node.localName)) out.push(space(0.167));
      out.push(atom.node);
      if (atom.isFunction && !/^(?:[([^_,.;:=+)\]-]|\\left|\\big\w*|\\[,;:! ]|)$/.test(this.peek()) && !this.isEnd(this.peek(), close)) out.push(space(0.167));
      last = atom;
    }
    this.font = font;
    this.depth--;
    return out;
  }

  group() {
    this.expect('{');
    const inner = this.nodes();
    this.expect('}');
    return row(inner);
  }

  // What a command is applied to: a group, or the next thing.
  argument() {
    const word = this.peek();
    if (word === '{') return this.group();
    if (this.isEnd(word)) throw new Unknown('an argument is missing');
    if (/^\d$/.test(word)) return m('mn', null, inFont(this.take(), this.font));
    const atom = this.atom();
    return atom ? atom.node : m('mrow');
  }

  // The argument in [...], or null.
  option() {
    if (!this.takeIf('[')) return null;
    const inner = this.nodes(']');
    this.expect(']');
    return row(inner);
  }

  // ---- Scripts ----

  scripted() {
    let atom = /^[\^_']$/.test(this.peek()) ? { node: m('mrow') } : this.atom();
    let below = null;
    let above = null;
    const marks = []; // primes
    for (;;) {
      const word = this.peek();
      if (word === '_' && !below) {
        this.take();
        below = this.argument();
      } else if (word === '^' && !above) {
        this.take();
        above = this.argument();
      } else if (word === '\'' && !above) {
        this.take();
        marks.push('′');
      } else if (atom && (word === '\\limits' || word === '\\nolimits')) {
        this.take();
        if (word === '\\limits') atom.node.setAttribute('movablelimits', 'false');
        atom = { ...atom, limits: word === '\\limits' ? 'fixed' : 'beside' };
      } else break;
    }
    if (marks.length > 0) {
      const primes = operator(marks.join(''), { lspace: '0', rspace: '0' });
      above = above ? m('mrow', null, primes, above) : primes;
    }
    if (!below && !above) return atom;
    if (!atom) atom = { node: m('mrow') };
    const isStacked = atom.limits === 'movable' || atom.limits === 'fixed';
    const names = isStacked ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    const name = names[below && above ? 2 : below ? 0 : 1];
    return { ...atom, node: m(name, null, atom.node, ...[below, above].filter(Boolean)), limits: undefined };
  }

  // ---- Atoms ----

  // The next thing in a row without its scripts; null for what draws nothing.
  atom() {
    const word = this.peek();
    if (word === '{') return { node: this.group() };
    this.take();
    if (word[0] === '\\') return this.command(word.slice(1));
    if (/\d/.test(word) || (word === '.' && /\d/.test(this.source[this.at] || ''))) return { node: this.number(word) };
    if (isLetter(word)) return { node: this.letters(word) };
    if (word === '-') return { node: operator('−') };
    if (word === '*') return { node: operator('∗') };
    if (word === '~') return { node: space(SPACES.get('~')) };
    if (word === '#' || word === '$') throw new Unknown(word);
    if (FENCES.has(word) && word !== '<' && word !== '>') return { node: plainFence(word) };
    return { node: operator(word) };
  }

  number(first) {
    let text = first;
    for (;;) {
      const rest = /^(?:\d|[.](?=\d)|,(?=\d{3}(?!\d)))/.exec(this.source.slice(this.at, this.at + 5));
      if (!rest) break;
      text += rest[0];
      this.at++;
    }
    return m('mn', null, [...text].map((c) => inFont(c, this.font)).join(''));
  }

  letters(first) {
    let text = first;
    const isWord = this.font === 'normal' || first > '\u02ff' && !/\p{Script=Greek}/u.test(first);
    if (isWord) {
      const rest = /^\p{L}*/u.exec(this.source.slice(this.at, this.at + 200))[0];
      text += rest;
      this.at += rest.length;
    }
    if (!this.font && !isWord) return m('mi', null, text);
    return m('mi', { mathvariant: 'normal' }, [...text].map((c) => inFont(c, this.font)).join(''));
  }

  // A sign from a table, in the alphabet that holds.
  sign(c, isSlanted) {
    if (this.font && this.font !== 'normal') {
      const other = inFont(c, this.font);
      if (other !== c) return m('mi', { mathvariant: 'normal' }, other);
    }
    return m('mi', isSlanted && this.font !== 'normal' ? null : { mathvariant: 'normal' }, c);
  }

  command(name) {
    if (SLANTED.has(name)) return { node: this.sign(SLANTED.get(name), true) };
    if (UPRIGHT.has(name)) return { node: this.sign(UPRIGHT.get(name), false) };
    if (OPERATORS.has(name)) return { node: operator(OPERATORS.get(name), name === 'mid' || name === 'parallel' ? { stretchy: 'false' } : null) };
    if (LARGE.has(name)) return { node: operator(LARGE.get(name), { movablelimits: 'true' }), limits: 'movable' };
    if (INTEGRALS.has(name)) return { node: operator(INTEGRALS.get(name)), limits: 'beside' };
    if (FUNCTIONS.has(name)) return { node: m('mi', { mathvariant: 'normal' }, name), isFunction: true };
    if (LIMITS.has(name)) return this.limit(LIMITS.get(name));
    if (SPACES.has(name)) return { node: space(SPACES.get(name)) };
    if (FENCES.has(`\\${name}`)) return { node: plainFence(FENCES.get(`\\${name}`)) };
    if (ACCENTS.has(name)) return this.accent(...ACCENTS.get(name));
    if (name === 'overline' || name === 'underline') return { node: m('mrow', { class: `m-${name}` }, this.argument()) };
    if (UNDER.has(name)) return { node: m('munder', { accentunder: 'true' }, this.argument(), operator(UNDER.get(name), { stretchy: 'true' })), limits: 'fixed' };
    if (LONG_ARROWS.has(name)) return this.longArrow(LONG_ARROWS.get(name));
    if (FONTS.has(name)) return this.inFont(FONTS.get(name));
    if (TEXTS.has(name)) return { node: this.text(this.takeText(), TEXTS.get(name)) };
    const big = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (big) return this.big({ big: '1.2em', Big: '1.8em', bigg: '2.4em', Bigg: '3em' }[big[1]]);
    const own = Object.hasOwn(COMMANDS, name) && COMMANDS[name];
    if (!own) throw new Unknown(`\\${name}`);
    return own(this, name);
  }

  limit(text) {
    return { node: operator(text, { movablelimits: 'true', lspace: '0', rspace: '0.167em', form: 'prefix' }), limits: 'movable', isFunction: true };
  }

  accent(c, isWide) {
    const base = this.argument();
    const mark = operator(c, { stretchy: String(isWide), class: c === '→' && !isWide ? 'm-vec' : 'm-accent' });
    return { node: m('mover', { accent: 'true' }, base, mark), limits: c === '⏞' || c === '⎴' ? 'fixed' : undefined };
  }

  longArrow(c) {
    const below = this.option();
    const above = this.argument();
    const pad = (node) => m('mrow', null, space(0.4), node, space(0.4));
    const arrow = operator(c, { stretchy: 'true' });
    return { node: below ? m('munderover', null, arrow, pad(below), pad(above)) : m('mover', null, arrow, pad(above)) };
  }

  inFont(font) {
    const old = this.font;
    this.font = font;
    const node = this.argument();
    this.font = old;
    return { node };
  }

  fence() {
    const word = this.take();
    if (word === '.') return '';
    if (!FENCES.has(word)) throw new Unknown(`a fence: ${word}`);
    return FENCES.get(word);
  }

  big(size) {
    const c = this.fence();
    return { node: operator(c, { stretchy: 'true', minsize: size, maxsize: size, lspace: '0', rspace: '0' }) };
  }

  // \left( ... \middle| ... \right)
  fenced() {
    const edge = (c, form) => operator(c, { stretchy: 'true', fence: 'true', form, ...(isBar(c) ? { lspace: '0', rspace: '0' } : {}) });
    const open = this.fence();
    const inner = this.nodes();
    this.expect('\\right');
    const close = this.fence();
    return { node: m('mrow', null, ...(open ? [edge(open, 'prefix')] : []), row(inner), ...(close ? [edge(close, 'postfix')] : [])) };
  }

  // Text, in which $...$ is a formula again.
  text(source, look) {
    const parts = [];
    const plain = (s) => s && parts.push(m('mtext', look ? { class: look } : null,
      s.replace(/\\([%$&#_{} ,;])/g, '$1').replace(/[{}]/g, '').replace(/~|^\s+|\s+$/g, '\u00a0').replace(/---?/g, '–').replace(/``|''/g, '"')));
    const pieces = source.split(/(?<!\\)\$/);
    if (/\\[A-Za-z]/.test(pieces.filter((_, i) => i % 2 === 0).join('')) || pieces.length % 2 === 0) throw new Unknown('a command in a text');
    pieces.forEach((piece, i) => (i % 2 === 0 ? plain(piece) : parts.push(this.inner(piece))));
    return row(parts);
  }

  // A formula inside of this one, at its cost.
  inner(source) {
    const parser = new Parser(source);
    parser.left = this.left;
    parser.depth = this.depth + 1;
    const nodes = parser.nodes();
    if (parser.peek() !== '') throw new Unknown(parser.peek());
    this.left = parser.left;
    return row(nodes);
  }

  // ---- Tables ----

  // Rows until \end or the end, with the columns aligned as said.
  table({ columns, isDisplay }, bars = []) {
    const rows = [];
    const isPairs = columns === 'pairs';
    const sideOf = (i) => (isPairs ? 'rl'[i % 2] : columns[Math.min(i, columns.length - 1)]);
    let rule = false;
    for (;;) {
      while (this.takeIf('\\hline') || this.takeIf('\\midrule') || this.takeIf('\\toprule') || this.takeIf('\\bottomrule')) rule = true;
      const cells = [];
      do {
        const bar = bars.includes(cells.length + 1) ? ' m-bar' : '';
        cells.push(m('mtd', { class: `m-${sideOf(cells.length)}${bar}` }, ...this.nodes()));
        this.left--;
      } while (this.takeIf('&'));
      const isEmpty = cells.length === 1 && cells[0].childNodes.length === 0;
      const next = this.peek();
      const goesOn = next === '\\\\' || next === '\\cr';
      if (!isEmpty || goesOn) rows.push(m('mtr', rule ? { class: 'm-rule' } : null, ...cells));
      if (!isEmpty || goesOn) rule = false;
      if (!goesOn) break;
      this.take();
      this.takeIf('*');
      const gap = /^\s*\[[^\]]{0,12}\]/.exec(this.source.slice(this.at, this.at + 20));
      if (gap) this.at += gap[0].length;
    }
    return m('mtable', { class: isPairs ? 'm-pairs' : 'm-table', ...(isDisplay ? { displaystyle: 'true' } : {}) }, ...rows);
  }

  environment() {
    const name = this.takeText();
    const kind = ENVIRONMENTS.get(name.replace(/\*$/, ''));
    if (!kind) throw new Unknown(`\\begin{${name}}`);
    let { columns } = kind;
    const bars = [];
    if (kind.takes) {
      let sides = '';
      for (const c of this.takeText()) {
        if ('lcr'.includes(c)) sides += c;
        if (c === '|') bars.push(sides.length);
      }
      if (columns !== 'pairs' && sides) columns = sides;
    } else if (this.peek() === '[') this.option();
    if (++this.depth > MAX_DEPTH) throw new Unknown('too deep');
    const table = this.table({ ...kind, columns }, bars);
    this.depth--;
    this.expect('\\end');
    if (this.takeText() !== name) throw new Unknown('another environment ends');
    if (name === 'smallmatrix') return { node: m('mstyle', { scriptlevel: '1' }, table) };
    if (kind.open === undefined && kind.close === undefined) return { node: table };
    const edge = (c, form) => (c ? [operator(c, { stretchy: 'true', fence: 'true', form })] : []);
    return { node: m('mrow', null, ...edge(kind.open, 'prefix'), table, ...edge(kind.close, 'postfix')) };
  }
}

// ---- Commands with a form of their own -----------------------------------------------------------

const STYLES = {
  displaystyle: { displaystyle: 'true', scriptlevel: '0' }, textstyle: { displaystyle: 'false', scriptlevel: '0' },
  scriptstyle: { displaystyle: 'false', scriptlevel: '1' }, scriptscriptstyle: { displaystyle: 'false', scriptlevel: '2' },
};

const style = (attributes, ...nodes) => m('mstyle', attributes, ...nodes);
const restOfRow = (name) => (p) => ({ node: style(STYLES[name], ...p.nodes()) });
const nothing = () => null;
const skipGroup = (p) => void p.takeText();
const onlyRow = (p) => ({ node: p.argument() });
const upright = (text) => m('mi', { mathvariant: 'normal' }, text);

function fraction(attributes) {
  return (p) => {
    const node = m('mfrac', null, p.argument(), p.argument());
    return { node: attributes ? style(attributes, node) : node };
  };
}

function binomial(attributes) {
  return (p) => {
    const node = m('mrow', null, operator('('), m('mfrac', { linethickness: '0' }, p.argument(), p.argument()), operator(')'));
    return { node: attributes ? style(attributes, node) : node };
  };
}

function colour(text) {
  if (!/^(?:[A-Za-z]{3,20}|#[\da-fA-F]{3}|#[\da-fA-F]{6})$/.test(text)) throw new Unknown('a colour');
  return text;
}

function length(p) {
  const em = readLength(p.takeText());
  if (em === null) throw new Unknown('a length');
  return { node: space(em) };
}

function modulo(open, close) {
  return (p) => ({ node: m('mrow', null, space(0.5), operator(open, { stretchy: 'false' }), upright('mod'), space(0.333), p.argument(), operator(close, { stretchy: 'false' })) });
}

const COMMANDS = {
  frac: fraction(null), dfrac: fraction(STYLES.displaystyle), tfrac: fraction(STYLES.textstyle), cfrac: fraction(STYLES.displaystyle),
  binom: binomial(null), dbinom: binomial(STYLES.displaystyle), tbinom: binomial(STYLES.textstyle),
  sqrt: (p) => {
    const degree = p.option();
    const inner = p.argument();
    return { node: degree ? m('mroot', null, inner, degree) : m('msqrt', null, inner) };
  },
  left: (p) => p.fenced(),
  middle: (p) => ({ node: operator(p.fence(), { stretchy: 'true', fence: 'true', lspace: '0.2em', rspace: '0.2em' }) }),
  begin: (p) => p.environment(),
  operatorname: (p) => {
    const isStarred = p.takeIf('*');
    const name = p.takeText().replace(/\\[,;: !]|~/g, ' ').replace(/\\(?:mathrm|text|rm)\b|[{}]/g, '').trim();
    if (name.includes('\\')) throw new Unknown('a command in a name');
    return isStarred ? p.limit(name) : { node: upright(name), isFunction: true };
  },
  overset: (p) => {
    const above = p.argument();
    return { node: m('mover', null, p.argument(), above) };
  },
  underset: (p) => {
    const below = p.argument();
    const atom = p.atom() || { node: m('mrow') };
    if (atom.limits === 'movable') atom.node.setAttribute('movablelimits', 'false');
    return { node: m('munder', null, atom.node, below) };
  },
  substack: (p) => {
    p.expect('{');
    const node = p.table({ columns: 'c' });
    p.expect('}');
    return { node };
  },
  not: (p) => {
    const atom = p.atom();
    if (!atom || atom.node.localName !== 'mo') throw new Unknown('\\not of something');
    atom.node.append('\u0338');
    return atom;
  },
  pmod: modulo('(', ')'), pod: (p) => ({ node: m('mrow', null, space(0.5), plainFence('('), p.argument(), plainFence(')')) }),
  mod: (p) => ({ node: m('mrow', null, space(0.5), upright('mod'), space(0.333), p.argument()) }),
  bmod: () => ({ node: operator('mod', { lspace: '0.222em', rspace: '0.222em' }) }),
  boxed: (p) => ({ node: m('mrow', { class: 'm-boxed' }, p.argument()) }), fbox: (p) => ({ node: m('mrow', { class: 'm-boxed' }, p.text(p.takeText(), '')) }),
  cancel: (p) => ({ node: m('mrow', { class: 'm-cancel' }, p.argument()) }), bcancel: (p) => ({ node: m('mrow', { class: 'm-cancel' }, p.argument()) }),
  phantom: (p) => ({ node: m('mphantom', null, p.argument()) }),
  hphantom: (p) => ({ node: m('mpadded', { height: '0', depth: '0' }, m('mphantom', null, p.argument())) }),
  vphantom: (p) => ({ node: m('mpadded', { width: '0' }, m('mphantom', null, p.argument())) }),
  tag: (p) => {
    const isBare = p.takeIf('*');
    const text = p.text(p.takeText(), '');
    return { node: m('mrow', null, space(2), ...(isBare ? [text] : [m('mtext', null, '('), text, m('mtext', null, ')')])) };
  },
  textcolor: (p) => {
    const mathcolor = colour(p.takeText());
    return { node: style({ mathcolor }, p.argument()) };
  },
  color: (p) => {
    const mathcolor = colour(p.takeText());
    return { node: p.peek() === '{' ? style({ mathcolor }, p.argument()) : style({ mathcolor }, ...p.nodes()) };
  },
  hspace: (p) => {
    p.takeIf('*');
    return length(p);
  },
  mathop: (p) => ({ node: p.argument(), limits: 'fixed' }),
  mspace: length, displaystyle: restOfRow('displaystyle'), textstyle: restOfRow('textstyle'), scriptstyle: restOfRow('scriptstyle'),
  scriptscriptstyle: restOfRow('scriptscriptstyle'),
  mathbin: onlyRow, mathrel: onlyRow, mathord: onlyRow, mathopen: onlyRow, mathclose: onlyRow, mathinner: onlyRow, ensuremath: onlyRow, smash: onlyRow,
  label: skipGroup, nonumber: nothing, notag: nothing, allowbreak: nothing, nobreak: nothing, '/': nothing, relax: nothing, centering: nothing,
  '%': () => ({ node: upright('%') }), $: () => ({ node: upright('$') }), '#': () => ({ node: upright('#') }), '&': () => ({ node: upright('&') }),
  _: () => ({ node: upright('_') }), '\n': () => ({ node: space(0.25) }),
};
COMMANDS.stackrel = COMMANDS.overset;
for (const [name, font] of Object.entries({ rm: 'normal', bf: 'bold', it: 'italic', sf: 'sans-serif', tt: 'monospace', cal: 'script' })) {
  COMMANDS[name] = (p) => void (p.font = font); // until the group ends
}
for (const name of ['tiny', 'small', 'normalsize', 'large', 'Large', 'LARGE', 'huge', 'Huge']) COMMANDS[name] = nothing;

// ---- The formula ---------------------------------------------------------------------------------

function parse(source, isDisplay) {
  const parser = new Parser(source);
  let nodes = parser.nodes();
  const word = parser.peek();
  if (word === '\\\\' || word === '&') {
    // Lines without an environment.
    const lines = new Parser(source);
    nodes = [lines.table({ columns: 'pairs', isDisplay: true })];
    if (lines.peek() !== '') throw new Unknown(lines.peek());
  } else if (word !== '') throw new Unknown(word);
  return m('math', isDisplay ? { display: 'block' } : null, ...nodes);
}

const known = new Map(); // source -> element or null; streams draw the same formula many times
const KNOWN = 300;

export function drawMath(source, isDisplay) {
  if (source.length > MAX_CHARS) return null;
  const key = (isDisplay ? 'd' : 'i') + source;
  if (!known.has(key)) {
    let node = null;
    try {
      node = parse(source, isDisplay);
    } catch (error) {
      if (!(error instanceof Unknown)) throw error;
    }
    if (known.size >= KNOWN) known.delete(known.keys().next().value);
    known.set(key, node);
  }
  return known.get(key)?.cloneNode(true) ?? null;
}
