/** Compares the page's terminal, cell by cell, with a reference terminal that is fed from the server's log. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import headless, { type ITerminalAddon } from "@xterm/headless";
import type { Page } from "playwright-core";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { readRetainedOutput } from "../../src/client/process/retained-output.ts";
import { CuttingProxy } from "../support/faults/cutting-proxy.ts";
import { until } from "../support/system/until.ts";
import { openBrowser, screenText, selectAction, serveConsole, signedIn } from "./browser.ts";

/** Loaded with `require`, because its types need a browser. */
const graphemes: { UnicodeGraphemesAddon: new () => ITerminalAddon } = createRequire(import.meta.url)(
  "@xterm/addon-unicode-graphemes",
);

type Screen = InstanceType<typeof headless.Terminal>;

/** Terminal size of the processes. */
const SIZE = { rows: 24, cols: 80 };
const SCROLLBACK_LINES = 10_000;

/** Output that is hard to render: colors, bold text, wide and combining characters, wrapped lines. */
const LINE = `\\033[1;3%dmline %d\\033[0m \\033[4%dm世界\\033[0m e\u0301 \\033[38;5;%dm%s\\033[0m\\n`;
const printLines = (lines: number) =>
  `mawk 'BEGIN { for (i = 1; i <= ${lines}; i++) printf "${LINE}", i % 8, i, (i + 3) % 8, i % 256, substr("${"x".repeat(120)}", 1, i % 120) }'`;

describe("the console's terminal", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("shows the end of the log after a reload during bulk output, cell by cell", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const handle = await watch(page, server.url, `${printLines(500_000)}; exec sleep 1000`);
    await until("the flood", async () => /line \d{4}/.test(await screenText(page)));
    for (let reloads = 0; reloads < 2; reloads++) {
      await page.reload();
      await page.getByRole("button", { name: "Take over" }).waitFor();
    }
    await until("the end of the output", async () => /line 500000 /.test(await screenText(page)));
    const shown = await screenOf(page);
    const expected = await screenFromLog(server.url, handle);
    assertSameCells(visibleCells(shown), visibleCells(expected));
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("has its whole scrollback after reloads and cuts, without loss or duplicates", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    await using proxy = await CuttingProxy.to(server.url);
    const through = loginUrl.replace(new URL(loginUrl).host, new URL(proxy.url).host);
    const { page } = await signedIn(opened.browser, through);
    // Nearly as much as the event log retains, in several chunks. The process waits for a line of input before each.
    const part = printLines(1_500);
    const script = `stty -echo; for part in 1 2 3 4; do ${part}; echo part $part; read -r _; done; exec sleep 1000`;
    const handle = await watch(page, server.url, script);
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    await using driver = await client.attach(handle, { role: "driver" });
    for (let round = 1; ; round++) {
      await until(`part ${round}`, async () => new RegExp(`^part ${round}$`, "m").test(await screenText(page)));
      if (round === 4) break;
      await driver.write(Buffer.from("\n"));
      // The cut happens while the next chunk is in transit.
      if (round === 2) await page.reload();
      else proxy.cut();
    }
    // After a reload, the page has only the screen and later output.
    await selectAction(page, "Load earlier output");
    const expected = allCells(await screenFromLog(server.url, handle));
    await until("the earlier output", async () => allCells(await screenOf(page)).length === expected.length);
    assertSameCells(allCells(await screenOf(page)), expected);
    await page.close();
  });
});

/** Starts a script on a terminal of the reference size, and opens its page as viewer. */
async function watch(page: Page, url: string, script: string): Promise<string> {
  await using client = await NodeExecServerClient.connectWebSocket({ url });
  const process = await client.start({
    processId: "watched",
    argv: ["/bin/sh", "-c", script],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin", LANG: "C.UTF-8" },
    tty: true,
    size: SIZE,
    lifetime: "server",
  });
  const handle = process.handle ?? "";
  await process.detach();
  await page.goto(`${new URL(page.url()).origin}/#/process/${handle}`);
  await page.getByRole("button", { name: "Take over" }).waitFor();
  return handle;
}

/** Reports only the first line that differs. */
function assertSameCells(shown: readonly string[], expected: readonly string[]): void {
  const at = expected.findIndex((line, index) => line !== shown[index]);
  if (at >= 0) assert.equal(shown[at], expected[at], `line ${at} of ${expected.length}`);
  assert.equal(shown.length, expected.length);
}

/** A reference terminal that receives the same bytes as the page's terminal. */
async function screenOf(page: Page): Promise<Screen> {
  const [file] = await Promise.all([page.waitForEvent("download"), selectAction(page, "Download screen")]);
  return screenWith([readFileSync(await file.path())]);
}

async function screenFromLog(url: string, handle: string): Promise<Screen> {
  await using client = await NodeExecServerClient.connectWebSocket({ url });
  await using process = await client.attach(handle);
  const { chunks } = await readRetainedOutput(process);
  return screenWith(chunks.map(({ chunk }) => chunk));
}

async function screenWith(chunks: readonly Uint8Array[]): Promise<Screen> {
  const screen = new headless.Terminal({ ...SIZE, scrollback: SCROLLBACK_LINES, allowProposedApi: true });
  screen.loadAddon(new graphemes.UnicodeGraphemesAddon());
  for (const chunk of chunks) await new Promise<void>((resolve) => screen.write(chunk, resolve));
  return screen;
}

function visibleCells(screen: Screen): string[] {
  const { baseY, length } = screen.buffer.active;
  return cellsOf(screen, baseY, length);
}

function allCells(screen: Screen): string[] {
  return cellsOf(screen, 0, screen.buffer.active.length);
}

/** Returns the cells of each line with character, width, colors and attributes. */
function cellsOf(screen: Screen, from: number, to: number): string[] {
  const { active } = screen.buffer;
  const lines: string[] = [`cursor ${active.cursorX},${active.cursorY}`];
  for (let y = from; y < to; y++) {
    const cells = Array.from({ length: SIZE.cols }, (_, x) => {
      const cell = active.getLine(y)?.getCell(x);
      if (!cell) return "?";
      // The first 16 colors have two encodings each.
      const foreground = cell.isFgPalette() ? "palette" : cell.getFgColorMode();
      const background = cell.isBgPalette() ? "palette" : cell.getBgColorMode();
      const attributes = [cell.isBold(), cell.isUnderline(), cell.isInverse(), cell.isItalic()].map(Boolean);
      const colors = [foreground, cell.getFgColor(), background, cell.getBgColor()];
      return [cell.getChars() || " ", cell.getWidth(), ...colors, ...attributes].join("/");
    });
    lines.push(cells.join(" "));
  }
  return lines;
}
