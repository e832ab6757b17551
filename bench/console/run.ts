/**
 * Measures the web console in Chromium: the bytes that the first page loads, the size of all its files, and the time
 * until the page is interactive. Every load starts with an empty cache. Checkouts take turns, so that the load of the
 * machine affects all of them. Writes the medians to `docs/performance.md`.
 *
 *   node bench/console/run.ts [--loads 15] [--beside CHECKOUT] [--no-write]
 * prose-ok-file: beside -- the name of the option
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import type { CDPSession, Page } from "playwright-core";
import { loginUrlOf, openBrowser } from "../../test/browser/browser.ts";
import { ServeChild } from "../../test/support/servers/serve.ts";
import { alignedTable, median, replaceSection } from "../report.ts";

const ROOT = join(import.meta.dirname, "../..");
const DOCUMENT = join(ROOT, "docs/performance.md");

const { values: flags } = parseArgs({
  options: {
    loads: { type: "string", default: "15" },
    beside: { type: "string" },
    "no-write": { type: "boolean", default: false },
  },
});

/** Reports `performance.now()` of the first frame in which the list of processes and its start button are there. */
const INTERACTIVE = `new Promise((resolve) => {
  const check = () => {
    const button = [...document.querySelectorAll("button")].find(({ textContent }) => textContent.trim() === "Start");
    const hasList = document.querySelector("tbody tr") !== null;
    if (button && hasList) resolve(performance.now());
    else requestAnimationFrame(check);
  };
  check();
})`;

/** A console under test: a signed-in page on a server of its checkout, with one process to list. */
class ConsoleUnderTest {
  readonly root: string;
  readonly times: number[] = [];
  firstLoadBytes = 0;
  readonly #page: Page;
  readonly #network: CDPSession;

  private constructor(root: string, page: Page, network: CDPSession) {
    this.root = root;
    this.#page = page;
    this.#network = network;
  }

  static async open(root: string, stack: AsyncDisposableStack): Promise<ConsoleUnderTest> {
    const command: [string, string] = [join(root, "bin/procwire"), "serve"];
    const server = new ServeChild(["--listen", "ws://127.0.0.1:0", "--web"], { command, cwd: root });
    stack.use(server);
    await server.listening();
    const opened = stack.use(await openBrowser());
    const page = await opened.browser.newPage();
    await page.goto(loginUrlOf(server));
    await page.getByLabel("Command (empty: a shell)").fill("sleep 1000");
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/process\//);
    await page.goto(`${new URL(page.url()).origin}/#/processes`);
    const network = await page.context().newCDPSession(page);
    await network.send("Network.enable");
    await network.send("Network.setCacheDisabled", { cacheDisabled: true });
    return new ConsoleUnderTest(root, page, network);
  }

  async load(): Promise<void> {
    let bytes = 0;
    const count = ({ encodedDataLength }: { encodedDataLength: number }) => {
      bytes += encodedDataLength;
    };
    this.#network.on("Network.loadingFinished", count);
    await this.#page.reload({ waitUntil: "commit" });
    this.times.push(Number(await this.#page.evaluate(INTERACTIVE)));
    this.firstLoadBytes = bytes;
    this.#network.off("Network.loadingFinished", count);
  }

  /** Returns the compressed size of all files of the console. */
  totalBytes(): number {
    const directory = join(this.root, "dist/web");
    return readdirSync(directory).reduce((sum, name) => sum + gzipSync(readFileSync(join(directory, name))).length, 0);
  }
}

await using stack = new AsyncDisposableStack();
const consoles = [await ConsoleUnderTest.open(ROOT, stack)];
if (flags.beside !== undefined) consoles.unshift(await ConsoleUnderTest.open(flags.beside, stack));
// The first load compiles the code of the server.
for (const one of consoles) await one.load();
for (const one of consoles) one.times.length = 0;
for (let round = 0; round < Number(flags.loads); round++) {
  for (const one of round % 2 === 0 ? consoles : consoles.toReversed()) await one.load();
}
const kib = (bytes: number) => `${(bytes / 1024).toFixed(0)} KiB`;
const rows: [string, (one: ConsoleUnderTest) => string][] = [
  ["bytes until the list is interactive, compressed", (one) => kib(one.firstLoadBytes)],
  ["all files of the console, compressed", (one) => kib(one.totalBytes())],
  ["time until the list is interactive, median", (one) => `${(median(one.times) ?? 0).toFixed(0)} ms`],
];
const head = ["metric", ...(consoles.length > 1 ? ["before"] : []), "procwire"];
const table = alignedTable(
  head,
  rows.map(([label, value]) => [label, ...consoles.map(value)]),
);
console.log(table);
if (!flags["no-write"] && consoles.length > 1) {
  const date = new Date().toISOString().slice(0, 10);
  replaceSection(DOCUMENT, "console", `Measured on ${date}, ${flags.loads} loads each.\n\n${table}`, "# Performance\n");
}
