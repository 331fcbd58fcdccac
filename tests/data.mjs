// Where the test data is: beside the checkout ($LACE_SHARED, by default ../shared), if it is there, and
// otherwise the checkout's own (tests/data/README.md). As tests/data.c.

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = new URL('..', import.meta.url).pathname;
const places = [process.env.LACE_SHARED || join(root, '../shared'), join(root, 'build/data')];

// The path of a file or folder, or undefined.
export function dataPath(relative) {
  return places.map((place) => resolve(place, relative)).find((path) => existsSync(path));
}
