// Sessions of a coding agent, as they are recorded, in small: a task of the user's, then calls of tools
// and their results, with reasoning before each, until the next task. A client sends replies back
// with their reasoning or without it, and arguments of calls in another order and with other spaces.

const WORDS = 'file line test path error value count name list state token cache page tree node read write open close parse check build link run wait send'.split(' ');

// The same numbers in every run.
function random(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * n);
  };
}

function sentence(draw, n) {
  return Array.from({ length: n }, () => WORDS[draw(WORDS.length)] + (draw(9) === 0 ? '\n' : '')).join(' ');
}

export const TOOLS = ['read_file', 'write_file', 'search', 'run_command', 'list_dir', 'edit', 'fetch_page', 'ask'].map((name) => ({
  type: 'function',
  function: {
    name, description: `Does ${name} for the agent. `.repeat(12),
    parameters: {
      type: 'object', required: ['path', 'limit'],
      properties: { path: { type: 'string', description: 'where' }, limit: { type: 'integer', description: 'how much' } },
    },
  },
}));

// How each family writes reasoning and a call, and the tokens that end a reply.
const STYLES = {
  hermes: {
    controls: ['<|im_start|>', '<|im_end|>'],
    write: (t) => `<think>\n${t.thought}\n</think>\n\n${t.call ? `<tool_call>\n{"name": "${t.call.name}", "arguments": {"path":"${t.call.path}",  "limit":${t.call.limit}}}\n</tool_call>` : t.answer}`,
    end: () => '<|im_end|>',
  },
  xml: {
    controls: ['<|im_start|>', '<|im_end|>'],
    write: (t) => `<think>\n${t.thought}\n</think>\n\n${t.call ? `<tool_call>\n<function=${t.call.name}>\n<parameter=path>\n${t.call.path}\n</parameter>\n<parameter=limit>\n${t.call.limit}\n</parameter>\n</function>\n</tool_call>` : t.answer}`,
    // The script's name ends the prompt, so the model opens its reasoning by itself.
    adapt: (template) => template.replace("{{- '<think>\\n' }}", ''),
    end: () => '<|im_end|>',
  },
  glm: {
    controls: ['[gMASK]', '<sop>', '<|system|>', '<|user|>', '<|assistant|>', '<|observation|>'],
    write: (t) => `\n<think>${t.thought}</think>\n${t.call ? `<tool_call>${t.call.name}\n<arg_key>path</arg_key>\n<arg_value>${t.call.path}</arg_value>\n<arg_key>limit</arg_key>\n<arg_value>${t.call.limit}</arg_value>\n</tool_call>` : t.answer}`,
    end: (t) => (t.call ? '<|observation|>' : '<|user|>'),
  },
};

// The templates of the measurement: a file, and how its model writes.
export const TEMPLATES = [['Qwen-Qwen3-0.6B', 'hermes'], ['Qwen3.5-4B', 'xml'], ['GLM-4.6', 'glm']];

// nTurns replies, every tenth of them to the user; results of about nResult words.
export function makeSession(style, nTurns, nResult) {
  const draw = random(7);
  const how = STYLES[style];
  const turns = Array.from({ length: nTurns }, (_, i) => {
    const isLast = i % 10 === 9;
    const t = {
      thought: `Step ${i}: ${sentence(draw, 14)}`,
      call: isLast ? null : { name: TOOLS[draw(TOOLS.length)].function.name, path: `src/dir${i}/${WORDS[draw(WORDS.length)]}${i}.c`, limit: 100 + i },
      answer: `Task ${i} is done: ${sentence(draw, 12)}`,
      result: `result ${i}: ${sentence(draw, nResult)}`,
    };
    t.text = how.write(t);
    t.end = how.end(t);
    return t;
  });
  return { turns, controls: how.controls, adapt: how.adapt ?? ((template) => template), tasks: Array.from({ length: Math.ceil(nTurns / 10) + 1 }, (_, i) => `Task ${i}: ${sentence(draw, 40)}`), system: `You are an agent. ${sentence(draw, 600)}` };
}

// The messages before reply number i, as a client sends them.
export function messagesBefore(session, i, sendsReasoning = true) {
  const messages = [{ role: 'system', content: session.system }, { role: 'user', content: session.tasks[0] }];
  for (let k = 0; k < i; k++) {
    const t = session.turns[k];
    const thought = sendsReasoning ? { reasoning_content: t.thought } : {};
    if (t.call) {
      const id = `call_${String(k).padStart(5, '0')}`;
      messages.push({ role: 'assistant', content: null, ...thought, tool_calls: [{ id, type: 'function', function: { name: t.call.name, arguments: JSON.stringify({ limit: t.call.limit, path: t.call.path }) } }] });
      messages.push({ role: 'tool', tool_call_id: id, content: t.result });
    } else {
      messages.push({ role: 'assistant', content: t.answer, ...thought }, { role: 'user', content: session.tasks[(k + 1) / 10] });
    }
  }
  return messages;
}
