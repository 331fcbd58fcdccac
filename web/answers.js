// Asks for answers and puts what comes into the conversation.

import { ApiError, stream } from './api.js';
import { withFiles } from './files.js';
import { contentOf, imagesOf } from './images.js';
import { isKnown, loadedServer } from './models.js';
import { requestFields } from './settings.js';
import { makeTitle, mode, state, whyNoImages } from './state.js';
import { ALTERNATIVES, createTokenReader } from './tokens.js';
import { callFields, resultMessages, takeCalls } from './tools.js';
import { addNode, pathTo, stamp } from './tree.js';

// In text mode an answer ends here if the settings do not say otherwise: a story has no end of its own.
export const TEXT_TOKENS = 400;

// Messages of one role that follow each other, after one between them was deleted, are one: templates want them in turn.
function joinNeighbours(messages) {
  const out = [];
  for (const message of messages) {
    const before = out.at(-1);
    if (before?.role !== message.role || before.tool_calls || message.role === 'tool') out.push(message);
    else if (typeof before.content === 'string' && typeof message.content === 'string') before.content = `${before.content}\n\n${message.content}`;
    else before.content = [before.content, message.content].flatMap((c) => (typeof c === 'string' ? [{ type: 'text', text: c }] : c));
  }
  return out;
}

// The messages of a path, without the reasoning of earlier answers, which templates leave out. That of calls stays.
function messagesOf(path) {
  return joinNeighbours(path.flatMap((n) => [
    { role: n.role, content: contentOf(withFiles(n), imagesOf(n)), ...(n.tools.length && n.reasoning ? { reasoning_content: n.reasoning } : {}), ...callFields(n) },
    ...resultMessages(n)]));
}

// Path and body of the request for what follows `node`; if that is an answer, it is continued.
function requestFor(conversation, node, server) {
  const path = pathTo(conversation, node);
  const { wantsTokens, ...fields } = requestFields();
  const body = { model: server.model.id || 'default', ...fields };
  const hasImages = path.some((n) => imagesOf(n).length > 0);
  if (hasImages && whyNoImages(server)) throw new Error(`${whyNoImages(server)} Choose another model, or delete the images of this conversation.`);
  if (mode(server) === 'text') {
    for (const name of ['chat_template_kwargs', 'reasoning_effort', 'tools']) delete body[name];
    if (wantsTokens) body.logprobs = ALTERNATIVES;
    // One text: what the model wrote goes on where it ended, what the user adds is a new paragraph.
    let prompt = conversation.system ? `${conversation.system}\n\n` : '';
    for (const n of path) {
      const text = [...n.files.map((f) => f.text), n.content].join('\n\n');
      prompt += n.role === 'user' && prompt && !/\s$/.test(prompt) ? `\n\n${text}` : text;
    }
    return ['/v1/completions', { max_tokens: TEXT_TOKENS, ...body, prompt }];
  }
  const messages = messagesOf(path);
  if (messages.at(-1).role === 'assistant' && node.reasoning) messages.at(-1).reasoning_content = node.reasoning;
  if (wantsTokens) Object.assign(body, { logprobs: true, top_logprobs: ALTERNATIVES });
  if (conversation.system.trim()) messages.unshift({ role: 'system', content: conversation.system });
  return ['/v1/chat/completions', { ...body, messages }];
}

export function explain(error) {
  if (!(error instanceof ApiError)) return error.message;
  if (error.status === 429 || error.status === 503) {
    return `${error.message}${error.retryAfter ? ` (again in ${error.retryAfter} s)` : ''}`;
  }
  return error.message;
}

// Adds a piece of a stream to the node; `run` has the times and counts of this request.
function takePiece(node, run, piece) {
  if (piece.content || piece.reasoning || piece.tools.length) {
    run.last = performance.now();
    run.first ||= run.last;
    run.pieces++;
  }
  if (piece.reasoning) node.reasoning += piece.reasoning;
  // It thinks until something else comes.
  if (!run.hasThought) run.thought = node.reasoning === run.given ? 0 : run.last - run.first;
  if (piece.content || piece.tools.length) run.hasThought = true;
  node.content += piece.content;
  takeCalls(node, piece.tools);
  if (piece.logprobs) node.tokens.push(...run.readTokens(piece.logprobs));
  if (piece.finish) run.finish = piece.finish;
  if (piece.cut) run.cut = piece.cut;
  if (piece.usage) run.usage = piece.usage;
  node.at = stamp();
}

// The figures of an answer; those of a continued one go on from `before`.
function figures(run, before, server) {
  const tokens = run.usage ? run.usage.completion_tokens : run.pieces;
  return {
    model: server.model.id, finish: run.finish, cut: run.cut, tokens: tokens + (before?.tokens || 0),
    first: before?.first || (run.first ? run.first - run.begin : 0), thought: (run.thought || 0) + (before?.thought || 0),
    rate: tokens > 1 && run.last > run.first ? ((tokens - 1) * 1000) / (run.last - run.first) : before?.rate || 0,
    // A continued answer is part of its own prompt.
    prompt: run.usage ? run.usage.prompt_tokens - (before?.tokens || 0) : before?.prompt || 0,
    cached: before ? before.cached || 0 : run.usage?.prompt_tokens_details?.cached_tokens || 0,
  };
}

// hooks: {begin(conversation), loaded(server), piece(conversation, node), end(conversation, node), needsKey(again)}
export function createAnswers(hooks) {
  // Receives an answer into `node`, which has what came before if it is continued.
  async function receive(conversation, node, from) {
    const abort = new AbortController();
    const before = node.meta;
    const run = {
      begin: performance.now(), first: 0, last: 0, given: node.reasoning, thought: 0, hasThought: false, usage: null, finish: null, cut: '', pieces: 0,
      readTokens: createTokenReader(),
    };
    let { server } = state;
    node.meta = null;
    node.error = null;
    node.at = stamp();
    state.streams.set(conversation.id, { node, abort, run });
    hooks.begin(conversation);
    try {
      if (server.models.length > 1) server = await serverOf(conversation, abort.signal);
      run.begin = performance.now();
      const [path, body] = requestFor(conversation, from, server);
      await stream(path, body, abort.signal, (piece) => {
        takePiece(node, run, piece);
        hooks.piece(conversation, node);
      });
    } catch (error) {
      if (state.isLeaving) return;
      if (error.name === 'AbortError') run.finish = 'stopped';
      else node.error = { message: explain(error), status: error.status || 0 };
    }
    node.meta = figures(run, before, server);
    node.at = stamp();
    state.streams.delete(conversation.id);
    if (!conversation.title && !conversation.named) conversation.title = makeTitle(conversation);
    conversation.updated = Date.now();
    hooks.end(conversation, node);
    if (node.error?.status === 401) hooks.needsKey(() => retry(conversation, node));
  }

  // The conversation's model, loaded: how it is asked depends on what it can do.
  async function serverOf(conversation, signal) {
    const { server } = state;
    const wanted = server.models.some((model) => model.id === conversation.model) ? conversation.model : server.model.id;
    if (!conversation.model) {
      conversation.model = wanted;
      conversation.modelSet = stamp();
    }
    if (isKnown(server) && wanted === server.model.id) return server;
    const loaded = await loadedServer(wanted, signal);
    hooks.loaded(loaded);
    return loaded;
  }

  // Asks for an answer below `above`.
  function answer(conversation, above) {
    if (state.streams.has(conversation.id)) return;
    receive(conversation, addNode(conversation, above.id, 'assistant', ''), above);
  }

  // Goes on with an answer that was stopped or cut.
  function more(conversation, node) {
    if (!state.streams.has(conversation.id)) receive(conversation, node, node);
  }

  // A failed answer without a word is asked for again in its place; another one gets a sibling.
  function retry(conversation, node) {
    if (state.streams.has(conversation.id) || !conversation.nodes[node.id]) return;
    const above = conversation.nodes[node.parent];
    if (node.content || node.reasoning || node.tools.length) answer(conversation, above);
    else receive(conversation, node, above);
  }

  return { answer, more, retry };
}
