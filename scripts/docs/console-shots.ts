/**
 * Writes screenshots of every page of the web console, in three sizes and two themes:
 * `npm run console:shots -- DIRECTORY [PAGE...]`.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { openBrowser, SIZES, serveConsole, signedIn } from "../../test/browser/browser.ts";
import { createSampleJobs, startSampleProcesses } from "../../test/browser/sample-data.ts";
import { scratchDirectory } from "../../test/support/servers/serve.ts";

/** Time for data and charts to appear. */
const SETTLE_MS = 2_500;
/** Time for the sparklines of the list of processes, whose rates need several polls. */
const SPARKLINES_MS = 12_000;
const SIZE_NAMES = ["desktop", "tablet", "phone"];

const [directory, ...only] = process.argv.slice(2);
if (directory === undefined) {
  process.stderr.write("usage: npm run console:shots -- DIRECTORY [PAGE...]\n");
  process.exit(2);
}
mkdirSync(directory, { recursive: true });

using scratch = scratchDirectory();
await using jobs = await createSampleJobs(join(scratch.path, "jobs"));
const { server, loginUrl } = await serveConsole("--jobs", join(scratch.path, "jobs"));
await using _ = server;
await using samples = await startSampleProcesses(server.url, scratch.path);
await using opened = await openBrowser();
const { page } = await signedIn(opened.browser, loginUrl);

const pages: readonly [name: string, hash: string, part?: string][] = [
  ["processes", "#/processes"],
  ["process", `#/process/${samples.handles.get("npm run dev")}`],
  ["jobs", "#/jobs"],
  ["job", `#/job/${jobs.running}`],
  ["rows", `#/job/${jobs.running}`, ".rows-card"],
  ["row", `#/job/${jobs.running}/row-5`],
  ["server", "#/server"],
  ["devices", "#/devices"],
  ["unknown", "#/nothing/here"],
];
for (const [name, hash, part] of pages) {
  if (only.length > 0 && !only.includes(name)) continue;
  for (const [index, size] of SIZES.entries()) {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      await page.goto(new URL(hash, loginUrl).href);
      await page.getByRole("main").waitFor();
      await page.waitForTimeout(name === "processes" && index === 0 ? SPARKLINES_MS : SETTLE_MS);
      if (part !== undefined) await page.locator(part).evaluate((element) => element.scrollIntoView());
      await page.screenshot({ path: join(directory, `${name}-${SIZE_NAMES[index]}-${colorScheme}.png`) });
    }
  }
}
await page.close();
