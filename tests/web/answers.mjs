// Answers of the mock: what models really write, what breaks renderers, and what attackers try.

const code = '```c\n/* Reverses a UTF-8 string in place. */\n#include <stdint.h>\n#include <string.h>\n\nstatic void reverse_bytes(char *s, size_t n)\n{\n    for (size_t i = 0; i < n / 2; i++) {\n        char t = s[i];\n        s[i] = s[n - 1 - i];\n        s[n - 1 - i] = t;\n    }\n}\n\nvoid reverse_utf8(char *s)\n{\n    size_t n = strlen(s);\n    reverse_bytes(s, n);\n    for (size_t i = 0; i < n;) {\n        size_t k = i;\n        while (k < n && ((uint8_t)s[k] & 0xc0) == 0x80) /* a byte in the middle of a character, seen from its end */\n            k++;\n        reverse_bytes(s + i, k - i + 1);\n        i = k + 1;\n    }\n}\n```';

export const ANSWERS = {
  markdown: {
    content: [
      '# A tour', '', 'Some **bold**, some *italic*, ***both***, `code`, ~~gone~~ and a [link](https://example.org/a_(b)).',
      'A second line. snake_case_name stays, 2 * 3 * 4 too.', '', '## Lists', '',
      '1. First', '2. Second', '   - nested', '   - again', '     with a second line', '3. Third', '', '- [x] done', '- [ ] open', '',
      '> A quote with `code`', '> in two lines', '', '| drink | caffeine (mg) | since |', '| :--- | ---: | :---: |', '| tea | 47 | 2700 BC |', '| coffee | 95 | 1450 |', '',
      '```python', 'def greet(name: str) -> str:', '    # says hello', '    return f"Hello {name}" * 2', '```', '', '---', '', 'The end: https://example.org/x?a=1.',
    ].join('\n'),
  },
  code: { content: `Reverse the bytes first, then turn each character around again:\n\n${code}\n\n**Why it works.** Reversing all bytes puts the characters in order and their bytes out of it; the second pass mends each one. It needs no memory and looks at each byte three times at most.` },
  thinking: {
    reasoning: 'The user wants a small table.\nI should compare taste, caffeine and ritual, and keep it short.\nThree rows are enough.',
    content: 'Both wake you up; they differ in **how**:\n\n| | tea | coffee |\n| --- | --- | --- |\n| caffeine | 40-70 mg | 80-120 mg |\n| feels like | a slope | a step |\n| ritual | patience | pressure |',
  },
  tools: {
    reasoning: 'I need the weather of two places.',
    content: 'Let me look.', finish: 'tool_calls',
    tools: [{ name: 'get_weather', arguments: '{"city": "Zürich", "days": [1, 2], "unit": "°C"}' }, { name: 'get_time', arguments: '{"zone": "Europe/' }],
  },
  letters: { content: 'A café with a 🦜 parrot.' },
  long: { content: Array.from({ length: 400 }, (_, i) => `word${i}`).join(' '), delay: 12 },
  ended: { content: 'The first half of it, and the second half.', breaksAfter: 4, delay: 30 },
  slow: { content: 'This is an answer that comes so slowly that one can stop it in the middle of the text and see what is left of it then.', delay: 120 },
  broken: { content: 'Half of an ans', breaksOff: true },
  cut: { content: 'As long as the limit allows, and the rest after it.', cutAt: 27 },
  injection: {
    content: [
      '<script>window.pwned = 1</script>', '', '<img src=x onerror="window.pwned = 2">', '', '[click](javascript:window.pwned=3)', '',
      '[data](data:text/html,<script>window.pwned=4</script>)', '', '![pixel](https://evil.example/pixel.png)', '',
      '<iframe srcdoc="<script>parent.pwned=5</script>"></iframe>', '', '```html', '<script>window.pwned = 6</script>', '```', '',
      '<svg/onload=window.pwned=7>', '', '| <b onmouseover=pwned=8>x</b> | y |', '| --- | --- |', '| `</code><script>pwned=9</script>` | [a](JaVaScRiPt:pwned=10) |', '',
      '<style>body{display:none}</style>', '', '[x](https://example.org" onclick="window.pwned=11)', '', '<https://example.org/"onmouseover="pwned=12">', '',
      '```"><script>window.pwned=13</script>', 'x', '```',
    ].join('\n'),
    reasoning: '<img src=x onerror="window.pwned = 14">',
  },
  maths: {
    content: String.raw`The roots of \(ax^2 + bx + c = 0\) with $a \ne 0$ are

\[
x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}.
\]

It costs $5 or $10, and **bold** is *not* harmed by $a_1 * b_1 * c_1$.

$$\begin{aligned} (a+b)^2 &= (a+b)(a+b) \\ &= a^2 + 2ab + b^2 \end{aligned}$$

- a sum: $\sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}$
- not known: \(\unheard{x}^2\)

| name | formula |
| --- | --- |
| Euler | $e^{i\pi} + 1 = 0$ |`,
  },
  headings: { content: '### Third\n\n# First\n\n###### Sixth\n\n> ## In a quote' },
  unclosed: { content: 'An open fence:\n\n```js\nconst x = `a${1}`;\n// still open' },
  deep: { content: '>'.repeat(5000) + ' deep\n\n' + Array.from({ length: 60 }, (_, i) => `${'  '.repeat(i)}- level ${i}`).join('\n') + '\n\n' + '*'.repeat(4000) + 'a' + '*'.repeat(4000) + '\n\n' + '['.repeat(4000), delay: 0 },
};
