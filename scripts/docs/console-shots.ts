/**
 * Writes screenshots of every page, drawer and dialog of the web console, in three sizes and two themes:
 * `npm run console:shots -- DIRECTORY [PAGE...]`.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { openBrowser, SIZES, selectAction, serveConsole, signedIn } from "../../test/browser/browser.ts";
import { createSampleJobs, startSampleProcesses } from "../../test/browser/sample-data.ts";
import { scratchDirectory } from "../../test/support/servers/serve.ts";

/** Time for charts and the first polls to appear. */
const SETTLE_MS = 1_500;
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

/** Opens a drawer or a dialog, or scrolls. */
type Action = (page: Page) => Promise<unknown>;
const click = (name: string) => page.getByRole("button", { name, exact: true }).click();
/** Opens a panel with its button or, on a narrow page, in the menu. */
const open = async (name: string) =>
  (await page.getByRole("button", { name, exact: true }).isVisible()) ? click(name) : selectAction(page, name);

/** Takes over, unless the page drives already. */
async function drive(): Promise<void> {
  const takeOver = page.getByRole("button", { name: "Take over" });
  if (await takeOver.isVisible()) await takeOver.click();
  await page.getByRole("button", { name: "Hand back" }).waitFor();
  // The message covers the terminal for some seconds.
  await page.getByText("you are the driver").waitFor({ state: "hidden" });
}

const devProcess = `#/process/${samples.handles.get("npm run dev")}`;
const pages: readonly [name: string, hash: string, act?: Action][] = [
  // First: the server forgets ended processes soon.
  ["ended", "#/processes", () => page.getByLabel("Show ended processes").check()],
  ["processes", "#/processes", () => page.getByLabel("Show ended processes").uncheck()],
  ["process", devProcess],
  ["watching", devProcess, () => page.keyboard.type("x")],
  ["share", devProcess, () => open("Share").then(() => click("Create link"))],
  ["tree", devProcess, () => open("Process tree")],
  ["kill", devProcess, () => open("Kill")],
  // After the other screenshots of the process, because the page remembers that it drives it.
  ["driving", devProcess, drive],
  ["jobs", "#/jobs"],
  ["job", `#/job/${jobs.running}`],
  ["rows", `#/job/${jobs.running}`, () => page.locator(".rows-card").evaluate((element) => element.scrollIntoView())],
  ["retry", `#/job/${jobs.running}`, () => page.getByRole("button", { name: /^Retry \d+ failed/ }).click()],
  ["row", `#/job/${jobs.running}/row-5`],
  ["server", "#/server"],
  ["devices", "#/devices"],
  ["add-device", "#/devices", () => click("Add a device")],
  ["access", "#/access"],
  ["account", "#/access", () => page.getByRole("button", { name: /^Account/ }).click()],
  ["unknown", "#/nothing/here"],
];
for (const [name, hash, act] of pages) {
  if (only.length > 0 && !only.includes(name)) continue;
  for (const [index, size] of SIZES.entries()) {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      // Closes the menu, drawer or dialog of the last screenshot. A reload would lose the history of the charts.
      if ((await page.getByRole("menu").count()) > 0) await page.keyboard.press("Escape");
      await page.goto(new URL("#/nothing", loginUrl).href);
      await page.goto(new URL(hash, loginUrl).href);
      await page.getByRole("main").waitFor();
      await page.getByText(/^(Loading|Attaching|Connecting)…$/).waitFor({ state: "detached" });
      await page.waitForTimeout(name === "processes" && index === 0 ? SPARKLINES_MS : SETTLE_MS);
      await act?.(page);
      if (act) await page.waitForTimeout(SETTLE_MS);
      await page.screenshot({ path: join(directory, `${name}-${SIZE_NAMES[index]}-${colorScheme}.png`) });
    }
  }
}
await page.close();
