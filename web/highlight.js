// Colours for code: comments, strings, numbers, words of the language and names that are called.
//
// One pattern per family of languages, tried at each place; none of them can backtrack far. What is
// not recognised stays plain, so a wrong guess costs colour and nothing else.

const MAX_CHARS = 60000; // longer code is shown plain

const WORDS = {
  c: 'auto break case const continue default do else enum extern for goto if inline register restrict return sizeof static struct switch typedef union volatile while int char float double void long short signed unsigned bool true false NULL nullptr class public private protected virtual template typename namespace using new delete try catch throw this override constexpr include define ifdef ifndef endif',
  js: 'async await break case catch class const continue debugger default delete do else export extends finally for from function if import in instanceof let new of return static super switch this throw try typeof var void while with yield true false null undefined interface type enum implements readonly as satisfies number string boolean any unknown never',
  python: 'and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield True False None self match case',
  rust: 'as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type unsafe use where while true false i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 bool str String Option Result Some None Ok Err Vec Box',
  go: 'break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil string int int64 uint8 byte rune error bool float64 make len append',
  java: 'abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new package private protected public return short static super switch synchronized this throw throws try void volatile while true false null var record String fun val when object',
  shell: 'if then else elif fi for while do done case esac in function return local export echo cd exit set sudo apt npm git make source test',
  sql: 'select from where insert into values update set delete create table drop alter index join left right inner outer on group by order having limit offset as and or not null is in between like distinct union all case when then else end primary key foreign references default count sum avg min max',
  lua: 'and break do else elseif end false for function goto if in local nil not or repeat return then true until while',
};

const ALIAS = {
  c: 'c', h: 'c', cpp: 'c', 'c++': 'c', cc: 'c', cuda: 'c', objc: 'c', csharp: 'java', cs: 'java',
  js: 'js', javascript: 'js', ts: 'js', typescript: 'js', jsx: 'js', tsx: 'js', mjs: 'js', json: 'js', jsonc: 'js',
  py: 'python', python: 'python', python3: 'python', rs: 'rust', rust: 'rust', go: 'go', golang: 'go',
  java: 'java', kotlin: 'java', kt: 'java', swift: 'java', scala: 'java', dart: 'java', php: 'js',
  sh: 'shell', bash: 'shell', zsh: 'shell', shell: 'shell', console: 'shell', dockerfile: 'shell', makefile: 'shell',
  yaml: 'shell', yml: 'shell', toml: 'shell', ini: 'shell', ruby: 'python', rb: 'python', r: 'python', perl: 'shell',
  sql: 'sql', lua: 'lua', haskell: 'lua', hs: 'lua', html: 'html', xml: 'html', svg: 'html', css: 'c', scss: 'c',
};

const SLASH = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;
const DASH = String.raw`--[^\n]*`;
const COMMENT = { c: SLASH, js: SLASH, rust: SLASH, go: SLASH, java: SLASH, python: HASH, shell: HASH, sql: `${DASH}|${SLASH}`, lua: DASH };
const STRING = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const TRIPLE = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|`;
const TICKS = '|`(?:[^`\\\\]|\\\\[^])*`?';
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)[a-zA-Z]{0,3}\b`;
const NAME = String.raw`[A-Za-z_$][\w$]*`;

const grammars = new Map();

function grammar(family) {
  if (!grammars.has(family)) {
    const string = (family === 'python' ? TRIPLE : '') + STRING + (family === 'js' || family === 'go' ? TICKS : '');
    grammars.set(family, {
      pattern: new RegExp(`(${COMMENT[family]})|(${string})|(${NUMBER})|(${NAME})`, 'g'),
      words: new Set(WORDS[family].split(' ')),
    });
  }
  return grammars.get(family);
}

function span(kind, text) {
  const node = document.createElement('span');
  node.className = `t-${kind}`;
  node.textContent = text;
  return node;
}

function highlightTags(code) {
  const out = [];
  let at = 0;
  for (const m of code.matchAll(/(<!--[^]*?(?:-->|$))|(<\/?[A-Za-z][\w:-]*|\/?>)|("[^"\n]*"|'[^'\n]*')/g)) {
    if (m.index > at) out.push(document.createTextNode(code.slice(at, m.index)));
    out.push(span(m[1] ? 'comment' : m[2] ? 'word' : 'string', m[0]));
    at = m.index + m[0].length;
  }
  out.push(document.createTextNode(code.slice(at)));
  return out;
}

// Nodes for the code.
export function highlight(code, language) {
  const family = ALIAS[(language || '').toLowerCase()];
  if (!family || code.length > MAX_CHARS) return [document.createTextNode(code)];
  if (family === 'html') return highlightTags(code);
  const { pattern, words } = grammar(family);
  const out = [];
  let plain = 0; // text from here on has no colour yet
  for (const m of code.matchAll(pattern)) {
    let kind = null;
    if (m[1]) kind = 'comment';
    else if (m[2]) kind = 'string';
    else if (m[3]) kind = 'number';
    else if (words.has(family === 'sql' ? m[4].toLowerCase() : m[4])) kind = 'word';
    else if (code[m.index + m[0].length] === '(') kind = 'call';
    if (!kind) continue;
    if (m.index > plain) out.push(document.createTextNode(code.slice(plain, m.index)));
    out.push(span(kind, m[0]));
    plain = m.index + m[0].length;
  }
  if (plain < code.length) out.push(document.createTextNode(code.slice(plain)));
  return out;
}
