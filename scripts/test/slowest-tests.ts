/** A reporter of Node's test runner: the slowest tests of a run, the slowest first. */
import { relative } from "node:path";
import type { TestEvent } from "node:test/reporters";

/** A smaller run is short enough to be read as a whole, so it has no list. */
const LISTED = 20;

export default async function* slowestTests(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const tests: { ms: number; title: string; place: string }[] = [];
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    const { name, details, file, line } = data;
    if (details.type === "suite") continue;
    const place = file === undefined ? "" : `${relative(process.cwd(), file)}:${line}`;
    tests.push({ ms: details.duration_ms, title: name, place });
  }
  if (tests.length <= LISTED) return;
  tests.sort((one, other) => other.ms - one.ms);
  yield `\nslowest ${LISTED} of ${tests.length} tests:\n`;
  for (const { ms, title, place } of tests.slice(0, LISTED))
    yield `${(ms / 1000).toFixed(1).padStart(7)} s  ${title} (${place})\n`;
}
