/** Reporter of Node's test runner that lists the slowest tests of a run. */
import { relative } from "node:path";
import type { TestEvent } from "node:test/reporters";

/** Number of listed tests. A smaller run has no list. */
const MAX_LISTED = 20;

export default async function* slowestTests(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const tests: { ms: number; title: string; location: string }[] = [];
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    const { name, details, file, line } = data;
    if (details.type === "suite") continue;
    const location = file === undefined ? "" : `${relative(process.cwd(), file)}:${line}`;
    tests.push({ ms: details.duration_ms, title: name, location });
  }
  if (tests.length <= MAX_LISTED) return;
  tests.sort((a, b) => b.ms - a.ms);
  yield `\nslowest ${MAX_LISTED} of ${tests.length} tests:\n`;
  for (const { ms, title, location } of tests.slice(0, MAX_LISTED))
    yield `${(ms / 1000).toFixed(1).padStart(7)} s  ${title} (${location})\n`;
}
