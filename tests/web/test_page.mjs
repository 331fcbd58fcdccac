// The page of the server, driven in Chromium. Run through test_page.sh, which looks for what it needs.
//
// Most cases use the mock, whose answers a test can choose; those at the end, a real `lace serve`.

import assert from 'node:assert/strict';
import { ask, browser, fits, lastAnswer, open, PHONE, runPageCases, say, settled } from './page.mjs';

const mocked = {
  async page_loads_under_its_policy_from_one_server({ mock }) {
    const page = await open(mock.url);
    await page.waitForSelector('.welcome');
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.requests.filter((url) => !url.startsWith(mock.url)), []);
  },

  // From another machine by plain HTTP, where a browser lacks what needs a secure context.
  async page_of_another_machine_says_where_it_runs({ mock }) {
    const here = await open(mock.url);
    assert.match(await here.textContent('.welcome'), /Runs on your own machine/);
    const context = await browser.newContext();
    await context.route('http://lace.test/**', async (route) => {
      const { url, headers } = { url: route.request().url().replace('http://lace.test', mock.url), headers: route.request().headers() };
      await route.fulfill({ response: await route.fetch({ url, headers: { ...headers, origin: mock.url } }) });
    });
    const page = await context.newPage();
    await page.goto('http://lace.test/');
    await page.waitForFunction(() => document.getElementById('model').textContent !== '');
    assert.equal(await page.evaluate(() => isSecureContext), false);
    assert.match(await page.textContent('.welcome'), /Runs on lace\.test\. What you write goes there and nowhere else\./);
    await ask(page, 'say:code');
    await page.locator('button:has-text("Copy")').first().click();
    await page.waitForSelector('button:has-text("Copied")');
  },

  async message_streams_and_ends_with_figures({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await page.waitForFunction(() => /This is/.test(document.querySelector('.answer .md')?.textContent || ''));
    assert.equal(await page.getAttribute('#send', 'aria-label'), 'Stop');
    await settled(page);
    assert.match(await lastAnswer(page).textContent(), /what is left of it then\.$/);
    assert.match(await page.textContent('.answer .stats'), /tokens · .* tokens\/s · first after/);
    assert.equal(mock.state.bodies[0].stream, true);
    assert.deepEqual(mock.state.bodies[0].messages, [{ role: 'user', content: 'say:slow' }]);
  },

  async one_model_needs_no_choice({ mock }) {
    const page = await open(mock.url);
    assert.equal(await page.isVisible('#model'), true);
    assert.equal(await page.isVisible('#model-choice'), false);
  },

  async several_models_can_be_chosen_from({ mock }) {
    mock.state.models = [{ id: 'org/big:q4', state: 'unloaded' }, { id: 'small', state: 'ready' }, { id: 'third', state: 'loading' }];
    const page = await open(mock.url);
    assert.equal(await page.isVisible('#model'), false);
    assert.equal(await page.inputValue('#model-choice'), 'small');
    assert.deepEqual(await page.locator('#model-choice option').allTextContents(), ['org/big:q4', 'small (loaded)', 'third (is being loaded)']);
    await ask(page, 'hello');
    assert.equal(mock.state.bodies[0].model, 'small');
    await page.selectOption('#model-choice', 'org/big:q4');
    await page.waitForFunction(() => document.getElementById('model').textContent === 'org/big:q4');
    await ask(page, 'hello again');
    assert.equal(mock.state.bodies[1].model, 'org/big:q4');
    assert.ok(mock.state.asked.includes('/props org/big:q4'));
    // It has been loaded meanwhile, which the page sees by itself; the choice outlives the page.
    mock.state.models[0].state = 'ready';
    await page.waitForFunction(() => document.querySelector('#model-choice option').textContent === 'org/big:q4 (loaded)');
    await page.reload();
    await page.waitForFunction(() => document.getElementById('model-choice').value === 'org/big:q4');
    assert.deepEqual(page.problems, []);
  },

  async stop_keeps_the_text_and_ends_the_request({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await page.waitForFunction(() => /This is an/.test(document.querySelector('.answer .md')?.textContent || ''));
    await page.click('#send');
    await settled(page);
    const text = await lastAnswer(page).textContent();
    assert.match(text, /^This is an/);
    assert.doesNotMatch(text, /left of it/);
    assert.match(await page.textContent('.answer .stats'), /stopped/);
    await page.waitForTimeout(300);
    assert.equal(mock.state.aborted, 1);
  },

  async escape_stops_too({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await page.waitForFunction(() => /This is/.test(document.querySelector('.answer .md')?.textContent || ''));
    await page.keyboard.press('Escape');
    await settled(page);
    assert.match(await page.textContent('.answer .stats'), /stopped/);
  },

  async edit_makes_a_branch_and_keeps_the_old_one({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'first');
    await ask(page, 'second');
    await page.hover('.user >> nth=0');
    await page.click('.user >> nth=0 >> [aria-label=Edit]');
    await page.fill('.edit', 'changed');
    await page.click('.edit-form >> text=Send');
    await settled(page);
    assert.equal(await page.locator('.message').count(), 2);
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: changed');
    assert.equal(await page.textContent('.user .branches span'), '2/2');
    await page.click('.user [aria-label="Previous version"]');
    assert.equal(await page.locator('.message').count(), 4);
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: second');
  },

  async another_answer_is_a_second_version({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'again please');
    await page.click('[aria-label="Another answer"]');
    await settled(page);
    assert.equal(await page.textContent('.answer .branches span'), '2/2');
    assert.equal(mock.state.bodies.length, 2);
    assert.deepEqual(mock.state.bodies[1].messages, mock.state.bodies[0].messages);
    await page.click('.answer [aria-label="Previous version"]');
    assert.equal(await page.textContent('.answer .branches span'), '1/2');
  },

  async reload_keeps_the_conversation_and_its_branch({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'keep me');
    await page.click('[aria-label="Another answer"]');
    await settled(page);
    await page.click('.answer [aria-label="Previous version"]');
    await page.waitForTimeout(1200); // written 0.8 s after the last change
    await page.reload();
    await page.waitForSelector('.answer .md');
    assert.equal(await page.textContent('.user .text'), 'keep me');
    assert.equal(await page.textContent('.answer .branches span'), '1/2');
    assert.equal(await page.inputValue('#title'), 'keep me');
  },

  async reload_in_the_middle_of_an_answer_keeps_what_came({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await page.waitForFunction(() => /stop it in/.test(document.querySelector('.answer .md')?.textContent || ''));
    await page.reload();
    await page.waitForSelector('.answer .md');
    assert.match(await lastAnswer(page).textContent(), /^This is an answer/);
    assert.equal(await page.locator('.streaming').count(), 0);
  },

  async conversations_are_listed_searched_and_deleted({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'about apples');
    await page.click('#new');
    await ask(page, 'about pears');
    assert.equal(await page.locator('.entry').count(), 2);
    await page.fill('#search', 'apples');
    assert.equal(await page.locator('.entry').count(), 1);
    await page.click('.entry .open');
    assert.equal(await page.textContent('.user .text'), 'about apples');
    await page.fill('#search', '');
    await page.click('.entry.on .remove');
    await page.click('#choice-dialog >> text=Delete >> nth=-1');
    await page.waitForFunction(() => document.querySelectorAll('.entry').length === 1);
    assert.equal(await page.textContent('.user .text'), 'about pears');
  },

  async an_answer_goes_on_while_another_conversation_is_open({ mock }) {
    const page = await open(mock.url);
    await say(page, 'say:slow');
    await page.waitForSelector('.answer.streaming');
    await page.click('#new');
    await ask(page, 'meanwhile');
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: meanwhile');
    await page.click('.entry:not(.on) .open');
    await settled(page);
    assert.match(await lastAnswer(page).textContent(), /left of it then\.$/);
  },

  async settings_and_system_prompt_are_sent({ mock }) {
    const page = await open(mock.url);
    await page.click('#settings-open');
    await page.fill('#set-system', 'You are brief.');
    await page.fill('#set-temperature', '0.3');
    await page.fill('#set-seed', '42');
    await page.fill('#set-stop', 'END\nSTOP');
    await page.selectOption('#set-format', 'json_object');
    await page.selectOption('#set-reasoning', 'low');
    await page.keyboard.press('Escape');
    await ask(page, 'hello');
    const body = mock.state.bodies[0];
    assert.deepEqual(body.messages[0], { role: 'system', content: 'You are brief.' });
    assert.equal(body.temperature, 0.3);
    assert.equal(body.seed, 42);
    assert.deepEqual(body.stop, ['END', 'STOP']);
    assert.deepEqual(body.response_format, { type: 'json_object' });
    assert.equal(body.reasoning_effort, 'low');
    assert.equal(body.top_k, undefined);
    await page.reload();
    await page.click('#settings-open');
    assert.equal(await page.inputValue('#set-temperature'), '0.3');
    assert.equal(await page.inputValue('#set-system'), 'You are brief.');
  },

  async injections_are_shown_as_text({ mock }) {
    const page = await open(mock.url);
    const before = page.requests.length;
    await ask(page, 'say:injection');
    await page.click('.reasoning summary');
    await page.waitForTimeout(200);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await page.locator('.log :is(script, img, iframe, style, object, embed, form:not(.edit-form), link)').count(), 0);
    const hrefs = await page.$$eval('.md a', (all) => all.map((a) => new URL(a.href).protocol));
    assert.ok(hrefs.every((p) => p === 'https:' || p === 'http:'), String(hrefs));
    const attributes = await page.$$eval('.md *', (all) => all.flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith('on') || n === 'style' || n === 'srcdoc'));
    assert.deepEqual(attributes, []);
    assert.match(await lastAnswer(page).textContent(), /<script>window\.pwned = 1<\/script>/);
    assert.ok(page.requests.slice(before).every((url) => url.startsWith(mock.url)));
    assert.deepEqual(page.problems, []);
  },

  async injection_in_the_users_own_words_title_and_model_name({ mock }) {
    mock.state.model = '<img src=x onerror="window.pwned=1">';
    const page = await open(mock.url);
    await ask(page, '<img src=x onerror="window.pwned=2"><b>bold</b>');
    await page.reload();
    await page.waitForSelector('.user .text');
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await page.locator('img, .user b').count(), 0);
  },

  async markdown_has_its_structure({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:markdown');
    const md = lastAnswer(page);
    const texts = (selector) => md.locator(selector).allTextContents();
    assert.deepEqual(await texts('.h1'), ['A tour']);
    assert.deepEqual(await texts('> p:first-of-type > strong'), ['bold']);
    assert.deepEqual(await texts('> p em strong, > p strong em'), ['both']);
    assert.deepEqual(await texts('del'), ['gone']);
    assert.equal(await md.locator('a').first().getAttribute('href'), 'https://example.org/a_(b)');
    assert.match(await md.locator('> p').first().textContent(), /snake_case_name stays, 2 \* 3 \* 4 too/);
    assert.equal(await md.locator('> ol > li').count(), 3);
    assert.equal(await md.locator('> ol > li > ul > li').count(), 2);
    assert.equal(await md.locator('.task input:checked').count(), 1);
    assert.equal(await md.locator('table tr').count(), 3);
    assert.deepEqual(await texts('tbody .to-right'), ['47', '95']);
    assert.equal(await md.locator('pre').textContent(), 'def greet(name: str) -> str:\n    # says hello\n    return f"Hello {name}" * 2');
    assert.equal(await md.locator('pre .t-comment').textContent(), '# says hello');
  },

  async streamed_blocks_equal_those_drawn_at_once({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:markdown');
    const streamed = await lastAnswer(page).innerHTML();
    await page.waitForTimeout(900);
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.equal(await lastAnswer(page).innerHTML(), streamed);
  },

  async hostile_nesting_is_drawn_in_time({ mock }) {
    const page = await open(mock.url);
    const begin = Date.now();
    await ask(page, 'say:deep');
    assert.ok(Date.now() - begin < 20000, `${Date.now() - begin} ms`); // it hangs if a scanner is quadratic
    assert.match(await lastAnswer(page).textContent(), /level 59/);
  },

  async unclosed_fence_is_code({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:unclosed');
    assert.equal(await lastAnswer(page).locator('pre').textContent(), 'const x = `a${1}`;\n// still open');
  },

  async code_is_copied({ mock }) {
    const page = await open(mock.url, { permissions: ['clipboard-read', 'clipboard-write'] });
    await ask(page, 'say:code');
    await page.click('.copy');
    await page.waitForFunction(() => document.querySelector('.copy .label').textContent === 'Copied');
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^\/\* Reverses a UTF-8 string/);
  },

  async reasoning_is_folded({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:thinking');
    assert.equal(await page.locator('.thoughts').isVisible(), false);
    assert.match(await page.textContent('.reasoning summary'), /^Thought for/);
    await page.click('.reasoning summary');
    assert.match(await page.textContent('.thoughts'), /small table/);
    await ask(page, 'and now');
    assert.equal(mock.state.bodies[1].messages[1].reasoning_content, undefined);
  },

  async errors_say_why_and_can_be_tried_again({ mock }) {
    const page = await open(mock.url);
    mock.state.fail = { status: 400, message: 'the prompt has 9214 tokens, the context 8192' };
    await ask(page, 'too long');
    assert.match(await page.textContent('.error'), /9214 tokens, the context 8192/);
    mock.state.fail = null;
    await page.click('.error button');
    await settled(page);
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: too long');
    assert.equal(await page.locator('.answer').count(), 1);
    assert.equal(await page.locator('.branches button').count(), 0);
  },

  async broken_stream_keeps_the_text({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:broken');
    assert.equal(await lastAnswer(page).textContent(), 'Half of an ans');
    assert.match(await page.textContent('.error'), /broke off/);
  },

  async cut_answer_says_so({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:cut');
    assert.match(await page.textContent('.answer .stats'), /cut at the limit/);
  },

  async key_is_asked_for_and_used({ mock }) {
    mock.state.key = 'right';
    const page = await open(mock.url);
    await page.waitForSelector('#key-dialog[open]');
    await page.fill('#key-input', 'wrong');
    await page.click('#key-form >> text=Use this key');
    await page.waitForFunction(() => /does not accept/.test(document.getElementById('key-why').textContent));
    await page.fill('#key-input', 'right');
    await page.click('#key-form >> text=Use this key');
    await page.waitForFunction(() => document.getElementById('model').textContent !== '');
    await ask(page, 'hello');
    assert.equal(await lastAnswer(page).textContent(), 'You wrote: hello');
    assert.equal(await page.evaluate(() => localStorage.getItem('lace.key')), null);
  },

  async model_without_a_template_continues_the_text({ mock }) {
    mock.state.hasTemplate = false;
    const page = await open(mock.url);
    assert.match(await page.textContent('.welcome'), /continues the text/);
    await ask(page, 'Once upon a time');
    assert.equal(mock.state.bodies[0].prompt, 'Once upon a time');
    await ask(page, 'The end');
    assert.equal(mock.state.bodies[1].prompt, 'Once upon a time and so it went on.\n\nThe end');
  },

  async server_that_is_gone_is_noticed({ mock }) {
    const page = await open(mock.url);
    await mock.close();
    await ask(page, 'anybody there?');
    assert.match(await page.textContent('.error'), /does not answer/);
    await page.waitForFunction(() => document.getElementById('live-text').textContent === 'offline');
  },

  async live_panel_shows_speed_queue_cache_and_latency({ mock }) {
    const page = await open(mock.url);
    await page.click('#live-open');
    await say(page, 'say:long');
    await page.waitForFunction(() => Number(document.querySelector('#pane-live .figure b').textContent) > 0);
    const text = await page.textContent('#pane-live');
    for (const part of [/tokens\/s/, /KV cache14%/, /Queue wait\d/, /First token\d/, /Between tokens\d/, /8192 tokens a request/]) assert.match(text, part);
    assert.match(await page.locator('.spark-line').first().getAttribute('d'), /^M.*L/);
  },

  async phone_has_no_sideways_scroll_and_all_in_reach({ mock }) {
    const page = await open(mock.url, PHONE);
    assert.ok(await fits(page));
    await ask(page, 'say:code');
    await ask(page, 'say:markdown');
    assert.ok(await fits(page));
    assert.equal(await page.locator('#side').isVisible(), false);
    await page.click('#side-open');
    await page.waitForSelector('#side', { state: 'visible' });
    await page.tap('#new');
    await page.waitForSelector('#side', { state: 'hidden' });
    await page.click('#settings-open');
    assert.ok(await fits(page));
    await page.click('#drawer-close');
    const box = await page.locator('#send').boundingBox();
    assert.ok(box.width >= 36 && box.y + box.height <= 780);
  },

  async keyboard_is_enough({ mock }) {
    const page = await open(mock.url);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
    await page.keyboard.type('one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal(await page.textContent('.user .text'), 'one\ntwo');
    await page.focus('#input');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('three');
    await page.keyboard.press('Enter');
    await settled(page);
    assert.equal(await page.textContent('.user .text'), 'three');
    await page.keyboard.press('Control+Shift+O');
    await page.waitForSelector('.welcome');
    await page.keyboard.press('Control+k');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
    await page.keyboard.press('Control+,');
    assert.equal(await page.locator('#pane-settings').isVisible(), true);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#drawer').isVisible(), false);
    await page.keyboard.press('Control+/');
    assert.equal(await page.locator('#help-dialog').isVisible(), true);
  },

  async every_control_has_a_name({ mock }) {
    const page = await open(mock.url);
    await ask(page, 'say:code');
    await page.click('#settings-open');
    const nameless = await page.evaluate(() => [...document.querySelectorAll('button, input, textarea, select')]
      .filter((e) => e.type !== 'checkbox' || !e.closest('.md'))
      .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.title || (e.labels && e.labels.length)))
      .map((e) => e.outerHTML.slice(0, 120)));
    assert.deepEqual(nameless, []);
  },

  async colours_follow_the_system_and_the_choice_is_kept({ mock }) {
    const page = await open(mock.url, { colorScheme: 'dark' });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await background(), 'rgb(20, 23, 28)');
    await page.click('#theme');
    assert.equal(await background(), 'rgb(251, 250, 248)');
    await page.reload();
    assert.equal(await background(), 'rgb(251, 250, 248)');
  },
};

// ---- With the program ----------------------------------------------------------------------------

const real = {
  async program_serves_the_page_with_its_policy({ server }) {
    const page = await open(server.url);
    const response = await page.goto(server.url);
    assert.match(response.headers()['content-security-policy'], /default-src 'none'/);
    assert.match(response.headers()['content-type'], /text\/html/);
    await page.waitForFunction(() => document.getElementById('model').textContent !== '');
    assert.deepEqual(page.problems, []);
  },

  async program_streams_into_the_page_and_is_stopped({ server }) {
    const page = await open(server.url);
    await say(page, 'Once upon a time');
    await page.waitForFunction(() => (document.querySelector('.answer .md')?.textContent || '').length > 20);
    await settled(page);
    assert.match(await page.textContent('.answer .stats'), /\d+ tokens/);
    await page.click('#live-open');
    await page.waitForFunction(() => /\d/.test(document.querySelector('#pane-live .figure b').textContent));
    await page.waitForTimeout(900);
    await page.reload();
    await page.waitForSelector('.answer .md > *');
    assert.equal(await page.textContent('.user .text'), 'Once upon a time');
  },
};

await runPageCases(mocked, real);
