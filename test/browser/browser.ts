import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { ServeChild } from "../support/servers/serve.ts";

const CHROMIUM = "/usr/bin/chromium";
/** The directory for the screenshots of a run. */
const SCREENSHOTS_DIRECTORY = "test-results";

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

export async function openBrowser() {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} is missing; \`npm run setup:debian\` installs it`);
  const profile = mkdtempSync(join(tmpdir(), "procwire-browser-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: FLAGS,
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
export async function serveConsole(...args: string[]) {
  const server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--web", "--metrics", ...args]).listening();
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
  await page.getByRole("link", { name: "Processes" }).waitFor();
  return { page, problems };
}

/** Starts a command, or a shell, with the form of the console. Resolves on the page of the process. */
export async function startOnPage(page: Page, command: string): Promise<string> {
  await page.getByRole("link", { name: "Processes" }).click();
  await page.getByLabel("Command (empty: a shell)").fill(command);
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByRole("button", { name: "Take over" }).waitFor();
  return new URL(page.url()).hash.split("/").at(-1) ?? "";
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

export async function keepScreenshot(page: Page, name: string): Promise<void> {
  mkdirSync(SCREENSHOTS_DIRECTORY, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS_DIRECTORY, `${name}.png`) });
}
