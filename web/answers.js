// Asks for answers and puts what comes into the conversation.

import { ApiError, stream } from './api.js';
import { withFiles } from './files.js';
import { requestFields } from './settings.js';
import { makeTitle, mode, state } from './state.js';
import { addNode, pathTo, stamp } from './tree.js';

// In text mode an answer ends here if the settings do not say otherwise: a story has no end of its own.
export const TEXT_TOKENS = 400;

// Messages of one role that follow each other, after one between them was deleted, are one: templates want them in turn.
function joinNeighbours(messages) {
  const out = [];
  for (const message of messages) {
    const before = out.at(-1);
    if (before?.role !== message.role) out.push(message);
    else before.content = `${before.content}\n\n${message.content}`;
  }
  return out;
}

// Path and body of the request for what follows `node`; if that is an answer, it is continued.
function requestFor(conversation, node) {
  const path = pathTo(conversation, node);
  const body = { model: state.server.model.id || 'default', ...requestFields() };
  if (mode() === 'text') {
    delete body.chat_template_kwargs;
    delete body.reasoning_effort;
    // One text: what the model wrote goes on where it ended, what the user adds is a new paragraph.
    let prompt = conversation.system ? `${conversation.system}\n\n` : '';
    for (const n of path) {
      const text = [...n.files.map((f) => f.text), n.content].join('\n\n');
      prompt += n.role === 'user' && prompt && !/\s$/.test(prompt) ? `\n\n${text}` : text;
    }
    return ['/v1/completions', { max_tokens: TEXT_TOKENS, ...body, prompt }];
  }
  const messages = joinNeighbours(path.map((n) => ({ role: n.role, content: withFiles(n) })));
  if (node.role === 'assistant' && node.reasoning) messages.at(-1).reasoning_content = node.reasoning;
  if (conversation.system.trim()) messages.unshift({ role: 'system', content: conversation.system });
  return ['/v1/chat/completions', { ...body, messages }];
}

function showTools(node, tools) {
  node.tools ||= [];
  for (const t of tools) {
    const call = (node.tools[t.index || 0] ||= { name: '', text: '' });
    call.name += t.function?.name || '';
    call.text += t.function?.arguments || '';
  }
  node.content = node.tools.map((c) => `Calls \`${c.name}\`\n\n\`\`\`json\n${c.text}\n\`\`\``).join('\n\n');
}

export function explain(error) {
  if (!(error instanceof ApiError)) return error instanceof SyntaxError ? `The JSON schema in the settings is not JSON: ${error.message}` : error.message;
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
  if (piece.content) {
    if (node.reasoning && !node.content) run.thought = performance.now() - run.first;
    node.content += piece.content;
  }
  if (piece.tools.length) showTools(node, piece.tools);
  if (piece.finish) run.finish = piece.finish;
  if (piece.usage) run.usage = piece.usage;
  node.at = stamp();
}

// The figures of an answer; those of a continued one go on from `before`.
function figures(run, before) {
  const tokens = run.usage ? run.usage.completion_tokens : run.pieces;
  return {
    model: state.server.model.id, finish: run.finish, tokens: tokens + (before?.tokens || 0),
    first: before?.first || (run.first ? run.first - run.begin : 0), thought: run.thought || before?.thought || 0,
    rate: tokens > 1 && run.last > run.first ? ((tokens - 1) * 1000) / (run.last - run.first) : before?.rate || 0,
    // A continued answer is part of its own prompt.
    prompt: run.usage ? run.usage.prompt_tokens - (before?.tokens || 0) : before?.prompt || 0,
    cached: before ? before.cached || 0 : run.usage?.prompt_tokens_details?.cached_tokens || 0,
  };
}

// hooks: {begin(conversation), piece(conversation, node), end(conversation, node), needsKey(again)}
export function createAnswers(hooks) {
  // Receives an answer into `node`, which has what came before if it is continued.
  async function receive(conversation, node, from) {
    const abort = new AbortController();
    const before = node.meta;
    const run = { begin: performance.now(), first: 0, last: 0, thought: 0, usage: null, finish: null, pieces: 0 };
    node.meta = null;
    node.error = null;
    node.at = stamp();
    state.streams.set(conversation.id, { node, abort });
    hooks.begin(conversation);
    try {
      const [path, body] = requestFor(conversation, from);
      await stream(path, body, abort.signal, (piece) => {
        takePiece(node, run, piece);
        hooks.piece(conversation, node);
      });
    } catch (error) {
      if (state.isLeaving) return;
      if (error.name === 'AbortError') run.finish = 'stopped';
      else node.error = { message: explain(error), status: error.status || 0 };
    }
    node.meta = figures(run, before);
    node.at = stamp();
    state.streams.delete(conversation.id);
    if (!conversation.title && !conversation.named) conversation.title = makeTitle(conversation);
    conversation.updated = Date.now();
    hooks.end(conversation, node);
    if (node.error?.status === 401) hooks.needsKey(() => retry(conversation, node));
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
    if (node.content || node.reasoning) answer(conversation, above);
    else receive(conversation, node, above);
  }

  return { answer, more, retry };
}
