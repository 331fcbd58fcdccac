// Cases of a test program in JavaScript: names are claims, the output is TAP, as in tap.h.
//
//     await runCases({ async answer_is_shown() { ... assert ... }, ... }, { seconds: 60 });
//
// A case that throws fails, and says why; one that calls skip("why") is skipped.

class Skip extends Error {}

export function skip(why) {
  throw new Skip(why);
}

// Runs the cases one after the other; only those whose name contains argv[2], if it is given.
export async function runCases(cases, { seconds = 120, before, after } = {}) {
  const wanted = process.argv[2] || '';
  const names = Object.keys(cases).filter((name) => name.includes(wanted));
  console.log(`1..${names.length}`);
  let failed = 0;
  for (const [i, name] of names.entries()) {
    let timer;
    try {
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no end after ${seconds} s`)), seconds * 1000);
      });
      await Promise.race([(async () => {
        const given = before ? await before(name) : undefined;
        try {
          await cases[name](given);
        } finally {
          if (after) await after(given);
        }
      })(), late]);
      console.log(`ok ${i + 1} - ${name}`);
    } catch (error) {
      if (error instanceof Skip) console.log(`ok ${i + 1} - ${name} # SKIP ${error.message}`);
      else {
        failed++;
        console.log(`not ok ${i + 1} - ${name}`);
        for (const line of String(error.stack || error).split('\n').slice(0, 12)) console.log(`# ${line}`);
      }
    } finally {
      clearTimeout(timer);
    }
  }
  return failed;
}
