// What the tests of the page share: a browser, a page in it, and the words of a user.
//
// Most cases use the mock, whose answers a test can choose; the others a real `lace serve`.

import { readFile } from 'node:fs/promises';
import { chromium } from 'playwright-core';
import { startServer } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';
import { startMock } from './mock.mjs';

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });

// A page on a new browser profile; problems are what a user would find in the console.
export async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', ...options });
  const page = await context.newPage();
  page.problems = [];
  page.requests = [];
  page.on('pageerror', (e) => page.problems.push(e.message));
  page.on('console', (m) => m.type() === 'error' && page.problems.push(m.text()));
  page.on('request', (r) => page.requests.push(r.url()));
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById('model').textContent !== '' || document.querySelector('dialog[open]'));
  return page;
}

export async function say(page, text) {
  await page.fill('#input', text);
  await page.press('#input', 'Enter');
}

// Until nothing streams any more.
export async function settled(page) {
  await page.waitForSelector('.message:last-child .acts:not([hidden])', { state: 'attached' });
  await page.waitForSelector('.streaming', { state: 'detached' });
}

export async function ask(page, text) {
  await say(page, text);
  await settled(page);
}

export const lastAnswer = (page) => page.locator('.answer').last().locator('.md');
export const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

// Presses a button that saves a file: its name and text.
export async function saved(page, button) {
  await page.click('#export');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
  await page.click('#save-dialog >> text=Close');
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), 'utf8') };
}

export async function load(page, name, text) {
  await page.click('#export');
  await page.setInputFiles('#load-file', { name, mimeType: 'application/json', buffer: Buffer.from(text) });
  await page.waitForFunction(() => document.getElementById('save-note').textContent !== '');
  const note = await page.textContent('#save-note');
  await page.click('#save-dialog >> text=Close');
  return note;
}

export const PHONE = { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true };

// Runs the cases of both kinds and ends the program: {name({mock})}, {name({server})}. args: of `lace serve`.
export async function runPageCases(mocked, real = {}, args = []) {
  let server = null;
  const cases = { ...mocked };
  for (const [name, run] of Object.entries(real)) cases[name] = async () => {
    server ||= await startServer(args);
    if (!server) skip('this lace has no verb serve');
    await run({ server });
  };
  const failed = await runCases(cases, {
    before: async () => ({ mock: await startMock() }),
    after: async ({ mock }) => {
      for (const context of browser.contexts()) await context.close();
      await mock.close();
    },
  });
  await browser.close();
  if (server) await server.stop();
  process.exit(failed ? 1 : 0);
}
