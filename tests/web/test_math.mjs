// Formulas in answers: found in the text, drawn as MathML, harmless. Run through test_math.sh.

import assert from 'node:assert/strict';
import { FORMULAS } from './formulas.mjs';
import { ask, fits, lastAnswer, open, PHONE, runPageCases } from './page.mjs';

// MathML of a formula without what only its looks need, or null.
const drawn = (page, source, isDisplay = false) => page.evaluate(async ([text, display]) => {
  const { drawMath } = await import('/math.js');
  const node = drawMath(text, display);
  return node && node.outerHTML.replace(/ (?:xmlns|class|stretchy|lspace|rspace|fence|form|movablelimits|mathvariant)="[^"]*"/g, '');
}, [source, isDisplay]);

// The text as the page draws it.
const rendered = (page, text) => page.evaluate(async (source) => {
  const { renderMarkdown } = await import('/markdown.js');
  const root = document.createElement('div');
  renderMarkdown(root, source);
  return { text: root.textContent, formulas: root.querySelectorAll('math').length, html: root.innerHTML };
}, text);

const row = (...parts) => parts.join('');
const mi = (c) => `<mi>${c}</mi>`;
const mo = (c) => `<mo>${c}</mo>`;
const mn = (c) => `<mn>${c}</mn>`;

const cases = {
  async formulas_are_drawn_and_text_around_them_is_not_harmed({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:maths');
    const md = lastAnswer(page);
    assert.equal(await md.locator('math').count(), 7);
    assert.equal(await md.locator('.math > math[display=block]').count(), 2);
    assert.equal(await md.locator('p').first().locator('math').first().textContent(), 'ax2+bx+c=0');
    const prices = md.locator('p', { hasText: 'It costs' });
    assert.match(await prices.textContent(), /It costs \$5 or \$10, and bold is not harmed by a1∗b1∗c1\./);
    assert.equal(await prices.locator('strong').count(), 1);
    assert.equal(await prices.locator('em').count(), 1);
    assert.equal(await md.locator('.math-source').textContent(), '\\(\\unheard{x}^2\\)');
    assert.equal(await md.locator('td math').textContent(), 'eiπ+1=0');
    assert.deepEqual(page.problems, []);
    const root = await md.locator('.math msqrt').boundingBox();
    const below = await md.locator('.math mfrac > :nth-child(2)').first().boundingBox();
    assert.ok(root.y + root.height <= below.y + 1, 'the numerator stands above the denominator');
  },

  async each_form_of_a_formula_has_its_structure({ mock }) {
    const page = await open(mock.url);
    const table = [
      ['a^2', row('<msup>', mi('a'), mn(2), '</msup>')],
      ['x_i^2', row('<msubsup>', mi('x'), mi('i'), mn(2), '</msubsup>')],
      ['\\frac{1}{2}', row('<mfrac>', mn(1), mn(2), '</mfrac>')],
      ['\\frac12', row('<mfrac>', mn(1), mn(2), '</mfrac>')],
      ['\\sqrt[3]{x}', row('<mroot>', mi('x'), mn(3), '</mroot>')],
      ['\\sum_{i=1}^n i', row('<munderover>', mo('∑'), '<mrow>', mi('i'), mo('='), mn(1), '</mrow>', mi('n'), '</munderover>', mi('i'))],
      ['\\int_0^1', row('<msubsup>', mo('∫'), mn(0), mn(1), '</msubsup>')],
      ['\\lim_{x\\to0}', row('<munder>', mo('lim'), '<mrow>', mi('x'), mo('→'), mn(0), '</mrow>', '</munder>')],
      ["f''", row('<msup>', mi('f'), mo('′′'), '</msup>')],
      ['\\hat x', row('<mover accent="true">', mi('x'), mo('^'), '</mover>')],
      ['\\left(x\\right)', row('<mrow>', mo('('), mi('x'), mo(')'), '</mrow>')],
      ['\\mathbb{R}\\mathcal{L}\\mathbf{x}', row(mi('ℝ'), mi('ℒ'), mi('𝐱'))],
      ['\\mathrm{kg}', mi('kg')],
      ['\\text{if } x', row('<mtext>if&nbsp;</mtext>', mi('x'))],
      ['3.14 - 1,000', row(mn('3.14'), mo('−'), mn('1,000'))],
      ['\\begin{matrix}a&b\\\\c&d\\end{matrix}', row('<mtable>', ...[['a', 'b'], ['c', 'd']].map((r) => `<mtr>${r.map((c) => `<mtd>${mi(c)}</mtd>`).join('')}</mtr>`), '</mtable>')],
      ['\\not=', mo('=\u0338')],
      ['2\\sin x', row(mn(2), '<mspace width="0.167em"></mspace>', mi('sin'), '<mspace width="0.167em"></mspace>', mi('x'))],
    ];
    for (const [source, wanted] of table) assert.equal(await drawn(page, source), `<math>${wanted}</math>`, source);
  },

  async formulas_that_models_write_are_all_known({ mock }) {
    const page = await open(mock.url);
    const unknown = await page.evaluate(async (all) => {
      const { drawMath } = await import('/math.js');
      return all.filter((source) => !drawMath(source, true) || !drawMath(source, false));
    }, FORMULAS);
    assert.deepEqual(unknown, []);
    assert.ok(FORMULAS.length > 65);
  },

  async what_is_no_formula_stays_text({ mock }) {
    const page = await open(mock.url);
    for (const text of ['costs $5 and $10', 'from $5 to $10.', 'US$5 or US$6', 'use $HOME/$USER here', 'a $ b $ c', '$ 5 $', 'only one $x here', 'an open \\[x']) {
      const result = await rendered(page, text);
      assert.equal(result.formulas, 0, text);
      assert.equal(result.text, text.replace('\\[', '['), text);
    }
    assert.equal((await rendered(page, '`$x$` and `\\(y\\)`')).formulas, 0);
    assert.equal((await rendered(page, '```\n$$x$$\n```')).formulas, 0);
    assert.equal((await rendered(page, 'escaped \\$5 and \\$6')).text, 'escaped $5 and $6');
  },

  async what_is_not_known_is_shown_as_it_was_written({ mock }) {
    const page = await open(mock.url);
    for (const text of ['$\\unheard{x}$', '\\(x^{2\\)', '$$\\begin{tikzpicture}x\\end{tikzpicture}$$', '$\\left( x$', '\\(\\frac{1}\\)', '$$a \\end{x}$$']) {
      const result = await rendered(page, text);
      assert.equal(result.formulas, 0, text);
      assert.equal(result.text, text);
    }
  },

  async displays_stand_in_all_their_places({ mock }) {
    const page = await open(mock.url);
    for (const text of ['$$x$$', '$$\nx\n$$', '\\[x\\]', '\\[\nx\n\\]', 'Text:\n$$\nx\n- y\n$$\nmore', '1. item\n\n   $$\n   x\n   $$\n2. item', '> $$x$$', '\\begin{align}\nx &= y\n\\end{align}', '```math\nx\n```', 'in $$x$$ a line', '$$x$$.']) {
      const { formulas, html } = await rendered(page, text);
      assert.equal(formulas, 1, text);
      assert.match(html, /display="block"/, text);
    }
  },

  async formula_that_comes_piece_by_piece_equals_one_drawn_at_once({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:maths');
    const streamed = await lastAnswer(page).innerHTML();
    await page.reload();
    await page.waitForSelector('.answer .md math');
    assert.equal(await lastAnswer(page).innerHTML(), streamed);
  },

  async formulas_make_no_elements_but_mathml_and_no_attributes_of_their_own({ mock }) {
    const page = await open(mock.url);
    const result = await page.evaluate(async () => {
      const { renderMarkdown } = await import('/markdown.js');
      const root = document.createElement('div');
      document.body.append(root);
      renderMarkdown(root, String.raw`
$\text{<img src=x onerror="window.pwned=1">}$ $<script>window.pwned=2</script>$ $\href{javascript:window.pwned=3}{x}$
$\color{red;background:url(https://evil.example)}{x}$ $\textcolor{expression(1)}{y}$ $\hspace{1em;color:red}$ $\class{x" onclick="pwned=4}{y}$
$\begin{array}{c" onclick="window.pwned=5}x\end{array}$ $\constructor{x}$ $\__proto__{x}$ $\operatorname{<b>x</b>}$ $\begin{constructor}x\end{constructor}$`);
      const all = [...root.querySelectorAll('*')];
      return {
        foreign: all.filter((e) => e.namespaceURI.endsWith('MathML') === false && !['P', 'SPAN', 'BR'].includes(e.tagName)).map((e) => e.tagName),
        attributes: [...new Set(all.flatMap((e) => e.getAttributeNames()))].filter((n) => /^on|style|href|src/.test(n)),
        colours: all.map((e) => e.getAttribute('mathcolor')).filter(Boolean),
        pwned: window.pwned,
      };
    });
    assert.deepEqual(result, { foreign: [], attributes: [], colours: [], pwned: undefined });
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.requests.filter((url) => !url.startsWith(mock.url)), []);
  },

  async hostile_formulas_take_bounded_work({ mock }) {
    const page = await open(mock.url);
    const slow = await page.evaluate(async () => {
      const { renderMarkdown } = await import('/markdown.js');
      const texts = {
        deep: `$${'{'.repeat(3000)}x${'}'.repeat(3000)}$`, fractions: `$${'\\frac{1}{'.repeat(900)}x${'}'.repeat(900)}$`, scripts: `$x${'^{x'.repeat(2000)}$`,
        lefts: `$${'\\left('.repeat(1000)}$`, dollars: '$a '.repeat(60000), opens: '\\('.repeat(60000), displays: '$$\n'.repeat(30000), long: `$${'x+'.repeat(200000)}$`,
        many: '$x^2$ '.repeat(5000), cells: `$$\\begin{matrix}${'&'.repeat(7000)}\\end{matrix}$$`, rows: `$$\\begin{matrix}${'\\\\'.repeat(3900)}\\end{matrix}$$`,
        primes: `$x${'\''.repeat(7000)}$`, escapes: `$${'\\\\'.repeat(60000)}`, begins: '\\begin{align}\n'.repeat(20000), unicode: `$${'𝐱'.repeat(3900)}$`,
      };
      const late = [];
      for (const [name, text] of Object.entries(texts)) {
        const begin = performance.now();
        renderMarkdown(document.createElement('div'), text);
        const ms = performance.now() - begin;
        if (ms > 5000) late.push(`${name}: ${ms.toFixed(0)} ms`); // each takes well under a second; a quadratic one does not end
      }
      return late;
    });
    assert.deepEqual(slow, []);
    assert.deepEqual(page.problems, []);
  },

  async wide_formula_scrolls_in_itself_on_the_phone({ mock }) {
    const page = await open(mock.url, PHONE);
    await page.evaluate(async () => {
      const { renderMarkdown } = await import('/markdown.js');
      const root = document.createElement('div');
      root.className = 'md';
      document.getElementById('log').append(root);
      renderMarkdown(root, `$$${'a_{n} + '.repeat(40)} 1$$`);
    });
    assert.ok(await fits(page));
    assert.ok(await page.$eval('.math', (e) => e.scrollWidth > e.clientWidth));
  },
};

await runPageCases(cases);
