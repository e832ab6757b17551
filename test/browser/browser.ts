import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BrowserContext, chromium, type Locator, type Page } from "playwright-core";
import { ServeChild } from "../support/servers/serve.ts";

const CHROMIUM = "/usr/bin/chromium";
/** The directory for the screenshots of a run. */
const SCREENSHOTS_DIRECTORY = "test-results";

/** Viewports of a desktop, a tablet and a phone. */
export const SIZES = [
  { width: 1280, height: 800 },
  { width: 900, height: 800 },
  { width: 390, height: 844 },
] as const;

/** Chromium requires --no-sandbox as root. The other flags disable its own network requests. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export async function openBrowser(...flags: string[]) {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} is missing; \`npm run setup:debian\` installs it`);
  const profile = mkdtempSync(join(tmpdir(), "procwire-browser-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: [...FLAGS, ...flags],
    viewport: { width: 1100, height: 700 },
  });
  return {
    browser,
    async [Symbol.asyncDispose]() {
      await browser.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

/** Starts a real server with its console. Returns it with the console's URL for a user. */
export function serveConsole(...args: string[]) {
  return serveConsoleIn({}, ...args);
}

/** Like `serveConsole`, with these environment variables. */
export async function serveConsoleIn(env: Record<string, string>, ...args: string[]) {
  const all = ["--listen", "ws://127.0.0.1:0", "--web", "--metrics", ...args];
  const server = await new ServeChild(all, { env }).listening();
  return { server, loginUrl: loginUrlOf(server) };
}

/** Returns the login URL that the server printed for a user. */
export function loginUrlOf({ stderr }: ServeChild): string {
  const loginUrl = /(http:\/\/\S+#token=\S+)/.exec(stderr)?.[1];
  if (loginUrl === undefined) throw new Error(`no address for a person in: ${stderr}`);
  return loginUrl;
}

/** Opens the console and signs in; problems of the page itself are collected. */
export async function signedIn(browser: BrowserContext, loginUrl: string): Promise<{ page: Page; problems: string[] }> {
  const page = await browser.newPage();
  const problems: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.goto(loginUrl);
  await sectionLink(page, "Processes").waitFor();
  return { page, problems };
}

/** Returns the link to a section in the header; breadcrumbs contain links of the same name. */
export function sectionLink(page: Page, name: "Processes" | "Jobs" | "Server"): Locator {
  return page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name });
}

/** Starts a command, or a shell, with the form of the console. Resolves on the page of the process. */
export async function startOnPage(page: Page, command: string): Promise<string> {
  await sectionLink(page, "Processes").click();
  await page.getByLabel("Command (empty: a shell)").fill(command);
  await page.getByRole("button", { name: "Start" }).click();
  // The page drives a process that it has started.
  await page.getByRole("button", { name: "Hand back" }).waitFor();
  return new URL(page.url()).hash.split("/").at(-1) ?? "";
}

/** Selects an action in the menu of the process page. */
export async function selectAction(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name }).click();
}

/** Ends the process with the dialog of the process page. */
export async function endProcess(page: Page, how: "Terminate" | "Kill now"): Promise<void> {
  await page.getByRole("button", { name: "Kill", exact: true }).click();
  await page.getByRole("button", { name: how }).click();
}

/** Returns the lines of the terminal as a screen reader receives them. */
export async function screenText(page: Page): Promise<string> {
  // The script is a string, because these tests have no browser types.
  return page.evaluate(
    `[...document.querySelectorAll(".xterm-accessibility-tree > div")].map((row) => row.textContent.trimEnd()).join("\\n")`,
  );
}

const AXE = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** Asserts that the current page has no accessibility violation in the light and the dark theme. */
export async function assertNoAxeFaults(page: Page, what: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    // The content security policy of the page blocks foreign scripts, so the debugger evaluates the checker.
    const found = await page.evaluate(`(() => { ${AXE}; return axe.run(document); })()`);
    const { violations } = found as { violations: { id: string; nodes: { html: string }[] }[] };
    const faults = violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
    assert.deepEqual(faults, [], `${what}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

/** Asserts that the page is not wider than the viewport. */
export async function assertNoHorizontalScrolling(page: Page): Promise<void> {
  const widest = await page.evaluate(`(() => {
    const { scrollWidth } = document.documentElement;
    return scrollWidth > innerWidth ? scrollWidth : 0;
  })()`);
  assert.equal(widest, 0, `the page ${page.url()} is wider than ${page.viewportSize()?.width} px`);
}

/** Asserts that only parts of the page scroll: the header of the console stays in place. */
export async function assertDocumentFits(page: Page): Promise<void> {
  const [height, available] = await page.evaluate<[number, number]>(
    "[document.documentElement.scrollHeight, innerHeight]",
  );
  assert.equal(height, available, `the height of the document of ${page.url()} at ${page.viewportSize()?.width} px`);
}

export async function keepScreenshot(page: Page, name: string): Promise<void> {
  mkdirSync(SCREENSHOTS_DIRECTORY, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS_DIRECTORY, `${name}.png`) });
}
