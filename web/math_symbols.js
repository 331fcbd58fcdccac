// What LaTeX's commands stand for: tables of math.js.
//
// A table is written as words, "name character name character", and read once.

function table(words) {
  const all = new Map();
  const parts = words.trim().split(/\s+/);
  for (let i = 0; i < parts.length; i += 2) all.set(parts[i], parts[i + 1]);
  return all;
}

// Letters that stand slanted, as variables do.
export const SLANTED = table(`
  alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ varkappa ϰ lambda λ
  mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
  digamma ϝ ell ℓ imath ı jmath ȷ wp ℘
`);

// Letters and signs that stand upright.
export const UPRIGHT = table(`
  Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω Alpha Α Beta Β Epsilon Ε Zeta Ζ Eta Η
  Iota Ι Kappa Κ Mu Μ Nu Ν Omicron Ο Rho Ρ Tau Τ Chi Χ
  infty ∞ partial ∂ nabla ∇ hbar ℏ hslash ℏ Re ℜ Im ℑ aleph ℵ beth ℶ gimel ℷ emptyset ∅ varnothing ∅ angle ∠ measuredangle ∡
  top ⊤ bot ⊥ forall ∀ exists ∃ nexists ∄ complement ∁ degree ° prime ′ dag † dagger † ddag ‡ ddagger ‡ S § P ¶ copyright ©
  ldots … dots … dotsc … dotso … vdots ⋮ triangle △ square □ Box □ blacksquare ■ Diamond ◊ lozenge ◊ diamondsuit ♢ heartsuit ♡
  clubsuit ♣ spadesuit ♠ star ⋆ bigstar ★ flat ♭ natural ♮ sharp ♯ checkmark ✓ surd √ pounds £ euro € yen ¥ mho ℧ eth ð
  backprime ‵ circledR ® N ℕ R ℝ Z ℤ Q ℚ C ℂ AA Å
`);

// Binary operators, relations and arrows; the browser's dictionary has their spaces.
export const OPERATORS = table(`
  pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ circ ∘ bullet ∙ cap ∩ cup ∪ uplus ⊎ sqcap ⊓ sqcup ⊔ vee ∨ lor ∨ wedge ∧ land ∧
  setminus ∖ smallsetminus ∖ wr ≀ diamond ⋄ bigtriangleup △ bigtriangledown ▽ triangleleft ◃ triangleright ▹ oplus ⊕ ominus ⊖
  otimes ⊗ oslash ⊘ odot ⊙ amalg ⨿ ltimes ⋉ rtimes ⋊ boxplus ⊞ boxtimes ⊠ neg ¬ lnot ¬ dotplus ∔ barwedge ⊼ veebar ⊻
  eq = ne ≠ neq ≠ le ≤ leq ≤ ge ≥ geq ≥ lt < gt > leqslant ⩽ geqslant ⩾ ll ≪ gg ≫ lll ⋘ ggg ⋙ equiv ≡ sim ∼ simeq ≃ approx ≈
  approxeq ≊ cong ≅ propto ∝ varpropto ∝ asymp ≍ doteq ≐ doteqdot ≑ triangleq ≜ coloneqq ≔ coloneq ≔ eqqcolon ≕ prec ≺ succ ≻
  preceq ⪯ succeq ⪰ in ∈ notin ∉ ni ∋ owns ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ nsubseteq ⊈ nsupseteq ⊉
  sqsubset ⊏ sqsubseteq ⊑ sqsupset ⊐ sqsupseteq ⊒ vdash ⊢ dashv ⊣ models ⊨ vDash ⊨ Vdash ⊩ nvdash ⊬ perp ⟂ parallel ∥ nparallel ∦
  mid ∣ nmid ∤ bowtie ⋈ smile ⌣ frown ⌢ between ≬ lesssim ≲ gtrsim ≳ lessgtr ≶ nless ≮ ngtr ≯ nleq ≰ ngeq ≱ ncong ≇ nsim ≁
  therefore ∴ because ∵ vartriangle △ trianglelefteq ⊴ trianglerighteq ⊵ lhd ⊲ rhd ⊳ unlhd ⊴ unrhd ⊵ multimap ⊸
  to → rightarrow → gets ← leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ impliedby ⟸ iff ⟺
  longrightarrow ⟶ longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹ Longleftarrow ⟸ Longleftrightarrow ⟺ mapsto ↦ longmapsto ⟼
  hookrightarrow ↪ hookleftarrow ↩ rightharpoonup ⇀ rightharpoondown ⇁ leftharpoonup ↼ leftharpoondown ↽ rightleftharpoons ⇌
  leftrightharpoons ⇋ rightleftarrows ⇄ leftrightarrows ⇆ twoheadrightarrow ↠ twoheadleftarrow ↞ rightsquigarrow ⇝ leadsto ⇝
  nrightarrow ↛ nleftarrow ↚ nRightarrow ⇏ nLeftarrow ⇍ nearrow ↗ searrow ↘ swarrow ↙ nwarrow ↖ circlearrowleft ↺ circlearrowright ↻
  cdots ⋯ dotsb ⋯ dotsm ⋯ dotsi ⋯ ddots ⋱ iddots ⋰ colon : vcentcolon :
`);

// Signs whose limits stand above and below in displays.
export const LARGE = table(`
  sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigvee ⋁ bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigodot ⨀ biguplus ⨄ bigsqcup ⨆
`);

// Integrals, whose limits stand beside.
export const INTEGRALS = table('int ∫ iint ∬ iiint ∭ iiiint ⨌ oint ∮ oiint ∯ oiiint ∰ intop ∫ smallint ∫');

// Names of functions; those of the second list take limits below.
export const FUNCTIONS = new Set(`arccos arcsin arctan arccot arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh
  tan tanh sgn tr Tr rank diag`.split(/\s+/));
export const LIMITS = new Map(Object.entries({
  lim: 'lim', limsup: 'lim sup', liminf: 'lim inf', max: 'max', min: 'min', sup: 'sup', inf: 'inf', det: 'det', gcd: 'gcd', lcm: 'lcm',
  Pr: 'Pr', argmax: 'arg max', argmin: 'arg min', injlim: 'inj lim', projlim: 'proj lim',
}));

// What may stand behind \left, \right, \middle and \big.
export const FENCES = table(String.raw`
  ( ( ) ) [ [ ] ] | | / / < ⟨ > ⟩ \{ { \} } \| ‖ \lbrace { \rbrace } \lbrack [ \rbrack ] \langle ⟨ \rangle ⟩ \lfloor ⌊ \rfloor ⌋
  \lceil ⌈ \rceil ⌉ \vert | \lvert | \rvert | \Vert ‖ \lVert ‖ \rVert ‖ \backslash \ \uparrow ↑ \downarrow ↓ \updownarrow ↕
  \Uparrow ⇑ \Downarrow ⇓ \Updownarrow ⇕ \lgroup ⟮ \rgroup ⟯ \lmoustache ⎰ \rmoustache ⎱ \ulcorner ⌜ \urcorner ⌝ \llcorner ⌞ \lrcorner ⌟
  \llbracket ⟦ \rrbracket ⟧ \mid ∣ \parallel ∥
`);

// Marks above: character, and whether it grows with what is below.
export const ACCENTS = new Map(Object.entries({
  hat: ['^', false], widehat: ['^', true], tilde: ['~', false], widetilde: ['~', true], bar: ['‾', false],
  vec: ['→', false], dot: ['˙', false], ddot: ['¨', false], dddot: ['⃛', false], check: ['ˇ', false], widecheck: ['ˇ', true], breve: ['˘', false],
  acute: ['´', false], grave: ['`', false], mathring: ['˚', false], overrightarrow: ['→', true], overleftarrow: ['←', true],
  overleftrightarrow: ['↔', true], overbrace: ['⏞', true], overbracket: ['⎴', true], overparen: ['⏜', true],
}));

// Marks below.
export const UNDER = table('underbrace ⏟ underbracket ⎵ underrightarrow → underleftarrow ← underleftrightarrow ↔ underparen ⏝');

// Arrows that grow with the text above.
export const LONG_ARROWS = table(`
  xrightarrow → xleftarrow ← xleftrightarrow ↔ xRightarrow ⇒ xLeftarrow ⇐ xLeftrightarrow ⇔ xmapsto ↦ xhookrightarrow ↪
  xhookleftarrow ↩ xrightharpoonup ⇀ xleftharpoonup ↼ xrightleftharpoons ⇌ xlongequal = xtwoheadrightarrow ↠
`);

// Spaces, in em.
export const SPACES = new Map(Object.entries({
  ',': 0.167, thinspace: 0.167, ':': 0.222, '>': 0.222, medspace: 0.222, ';': 0.278, thickspace: 0.278, '!': -0.167, negthinspace: -0.167,
  ' ': 0.25, space: 0.25, nobreakspace: 0.25, quad: 1, qquad: 2, enspace: 0.5, enskip: 0.5, '~': 0.25,
}));

// Letters of other shapes: where their alphabets begin in Unicode (A, a, 0), and the ones that stand elsewhere.
export const ALPHABETS = {
  bold: { A: 0x1d400, a: 0x1d41a, 0: 0x1d7ce, greek: 0x1d6a8 },
  italic: { A: 0x1d434, a: 0x1d44e, but: { h: 'ℎ' } },
  'bold-italic': { A: 0x1d468, a: 0x1d482, 0: 0x1d7ce, greek: 0x1d71c },
  script: { A: 0x1d49c, a: 0x1d4b6, but: { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' } },
  fraktur: { A: 0x1d504, a: 0x1d51e, but: { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' } },
  'double-struck': { A: 0x1d538, a: 0x1d552, 0: 0x1d7d8, but: { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' } },
  'sans-serif': { A: 0x1d5a0, a: 0x1d5ba, 0: 0x1d7e2 },
  monospace: { A: 0x1d670, a: 0x1d68a, 0: 0x1d7f6 },
};

// Commands that choose an alphabet; "normal" is upright.
export const FONTS = new Map(Object.entries({
  mathrm: 'normal', mathup: 'normal', mathnormal: 'italic', mathit: 'italic', mathbf: 'bold', mathbold: 'bold', boldsymbol: 'bold-italic', bm: 'bold-italic',
  pmb: 'bold-italic', mathbb: 'double-struck', Bbb: 'double-struck', mathcal: 'script', mathscr: 'script', mathfrak: 'fraktur', frak: 'fraktur',
  mathsf: 'sans-serif', mathtt: 'monospace',
}));

// Commands whose argument is text, and the class of its looks.
export const TEXTS = new Map(Object.entries({
  text: '', textrm: '', textnormal: '', mbox: '', hbox: '', textup: '', textbf: 'm-bold', textit: 'm-italic', emph: 'm-italic', textsf: 'm-sans',
  texttt: 'm-mono', textsc: '', textmd: '',
}));

// Environments: how columns are aligned, and the fences around. "pairs": right, left, right, left...
export const ENVIRONMENTS = new Map(Object.entries({
  matrix: { columns: 'c' }, smallmatrix: { columns: 'c' }, pmatrix: { columns: 'c', open: '(', close: ')' }, bmatrix: { columns: 'c', open: '[', close: ']' },
  Bmatrix: { columns: 'c', open: '{', close: '}' }, vmatrix: { columns: 'c', open: '|', close: '|' }, Vmatrix: { columns: 'c', open: '‖', close: '‖' },
  array: { columns: 'c', takes: true }, subarray: { columns: 'c', takes: true },
  cases: { columns: 'l', open: '{', close: '' }, dcases: { columns: 'l', open: '{', close: '', isDisplay: true }, rcases: { columns: 'l', open: '', close: '}' },
  aligned: { columns: 'pairs', isDisplay: true }, align: { columns: 'pairs', isDisplay: true }, alignat: { columns: 'pairs', isDisplay: true, takes: true },
  alignedat: { columns: 'pairs', isDisplay: true, takes: true }, flalign: { columns: 'pairs', isDisplay: true }, split: { columns: 'pairs', isDisplay: true },
  eqnarray: { columns: 'rcl', isDisplay: true }, gathered: { columns: 'c', isDisplay: true }, gather: { columns: 'c', isDisplay: true },
  multline: { columns: 'c', isDisplay: true }, equation: { columns: 'c', isDisplay: true }, displaymath: { columns: 'c', isDisplay: true },
}));
