/** The page of a process: who drives it, its terminal, its drawer, and its share links. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { CuttingProxy } from "../support/faults/cutting-proxy.ts";
import type { ServeChild } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import {
  assertNoAxeFaults,
  assertNoHorizontalScrolling,
  endProcess,
  keepScreenshot,
  openBrowser,
  SIZES,
  screenText,
  selectAction,
  serveConsole,
  signedIn,
  startOnPage,
} from "./browser.ts";

const state = async (page: Page) => (await page.locator("output.state").textContent()) ?? "";
const shows = (page: Page, text: RegExp) => until(String(text), async () => text.test(await screenText(page)));
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });

describe("the page of a process", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  let server: ServeChild;
  let page: Page;
  let problems: string[];
  before(async () => {
    opened = await openBrowser();
    const served = await serveConsole();
    server = served.server;
    ({ page, problems } = await signedIn(opened.browser, served.loginUrl));
  });
  after(async () => {
    assert.deepEqual(problems, []);
    await opened[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  /** Starts a script without a driver, and waits until it has printed `output`. Returns its handle. */
  async function start(
    script: string,
    size = { rows: 24, cols: 80 },
    more: Partial<StartParams> = {},
    output = "",
  ): Promise<string> {
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const process = await client.start({
      processId: crypto.randomUUID(),
      argv: ["/bin/sh", "-c", script],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin", TERM: "xterm-256color" },
      tty: true,
      size,
      lifetime: "server",
      ...more,
    });
    if (output !== "") await waitFor(process, output);
    await process.detach();
    return process.handle ?? "";
  }
  const goTo = (target: Page, handle: string) => target.goto(`${new URL(page.url()).origin}/#/process/${handle}`);

  test("drives a process that it has started: typing works at once, also after a reload", async () => {
    await startOnPage(page, "exec cat");
    await page.keyboard.type("first\n");
    await shows(page, /^first\nfirst$/m);
    await page.reload();
    await button(page, "Hand back").waitFor();
    await shows(page, /^first\nfirst$/m);
    await page.keyboard.type("second\n");
    await shows(page, /^second\nsecond$/m);
    await endProcess(page, "Kill now");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
  });

  test("offers a viewer to take over when it types, and when the driver leaves; Enter takes over", async () => {
    const handle = await startOnPage(page, "exec cat");
    await page.keyboard.type("driver\n");
    const viewer = await opened.browser.newPage();
    await goTo(viewer, handle);
    await shows(viewer, /^driver\ndriver$/m);
    await viewer.locator(".xterm-helper-textarea").focus();
    await viewer.keyboard.type("x");
    await viewer.getByText("You are watching. Take over?").waitFor();
    assert.deepEqual(await viewer.locator("button.primary").allTextContents(), ["Yes"]);
    await assertNoAxeFaults(viewer, "a viewer with the question");
    await viewer.locator(".xterm-helper-textarea").focus();
    await viewer.keyboard.press("Enter");
    await viewer.getByText("you are the driver").waitFor();
    await page.getByText("you are viewer now").waitFor();
    await viewer.keyboard.type("mine\n");
    await shows(page, /^mine\nmine$/m);
    assert.doesNotMatch(await screenText(page), /x/, "the key of the viewer was not sent");
    const second = await opened.browser.newPage();
    await goTo(second, handle);
    await shows(second, /^mine\nmine$/m);
    await viewer.close();
    for (const left of [page, second]) await left.getByText("The driver left. Take over?").waitFor();
    await page.bringToFront();
    await page.locator(".xterm-helper-textarea").focus();
    await page.keyboard.press("Enter");
    await button(page, "Hand back").waitFor();
    // A new driver ends the question of the other viewers.
    await second.getByText("The driver left. Take over?").waitFor({ state: "detached" });
    await second.close();
    await page.keyboard.type("back\n");
    await shows(page, /^back\nback$/m);
  });

  test("asks a viewer who types without a click first, and not for reports of focus and mouse", async () => {
    const handle = await start("printf '\\033[?1003h\\033[?1004h\\033[?1006hready\\n'; exec cat");
    await page.goto(new URL("#/processes", page.url()).href);
    await page.getByRole("link", { name: handle }).click();
    await shows(page, /^ready$/m);
    const question = page.getByText("You are watching. Take over?");
    const terminal = page.locator(".xterm-screen");
    await until("the focus", () => page.evaluate("document.activeElement.matches('.xterm-helper-textarea')"));
    await terminal.hover({ position: { x: 50, y: 50 } });
    await terminal.click({ position: { x: 80, y: 80 } });
    await page.getByRole("heading", { level: 1 }).click();
    await page.locator(".xterm-helper-textarea").focus();
    assert.equal(await question.count(), 0);
    await page.keyboard.type("x");
    await question.waitFor();
    // The focus stays in the terminal after the answer, so that the next key asks again.
    await button(page, "Keep watching").click();
    await question.waitFor({ state: "detached" });
    await page.keyboard.type("y");
    await question.waitFor();
    await page.keyboard.press("Enter");
    await button(page, "Hand back").waitFor();
    // The program receives the reports of its driver.
    await terminal.hover({ position: { x: 90, y: 90 } });
    await shows(page, /\^\[\[<\d+;\d+;\d+/);
    await endProcess(page, "Kill now");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
  });

  test("shows the state of the process, also if the server loses track of it", async () => {
    const badge = (text: RegExp, on = page) => on.locator(".bar > .badge", { hasText: text }).waitFor();
    const handle = await startOnPage(
      page,
      "stty raw; head -c 1 > /dev/null; stty sane -echo; read -r _; stty echo; exec cat",
    );
    await badge(/^waiting for input$/);
    await page.keyboard.type("x");
    await badge(/^waiting for a password$/);
    await page.keyboard.type("secret\n");
    await badge(/^running$/);
    assert.match(await page.title(), / · procwire$/);

    // The test sends the notification in place of the server, because no process here fails like that.
    const other = await opened.browser.newPage();
    let toPage = (_message: string): void => assert.fail("the page has no connection");
    await other.routeWebSocket(/^ws:/, (socket) => {
      const upstream = socket.connectToServer();
      toPage = (message) => socket.send(message);
      upstream.onMessage((message) => socket.send(message));
    });
    await goTo(other, handle);
    await badge(/^running$/, other);
    const params = { processId: handle, message: "its pidfd is gone" };
    toPage(JSON.stringify({ jsonrpc: "2.0", method: "process/failed", params }));
    await badge(/^failed \(the server lost track of the process\)$/, other);
    assert.equal(await button(other, "Take over").count(), 0);
    await other.close();
    await endProcess(page, "Kill now");
    await badge(/^killed/);
  });

  test("moves nothing for users who prefer reduced motion", async () => {
    const animated = () =>
      page.evaluate<number>("document.getAnimations().filter((it) => it.playState === 'running').length");
    for (const reducedMotion of ["no-preference", "reduce"] as const) {
      await page.emulateMedia({ reducedMotion });
      await page.reload();
      await startOnPage(page, "exec cat");
      await page.locator(".bar > .badge", { hasText: "running" }).waitFor();
      if (reducedMotion === "reduce") assert.equal(await animated(), 0);
      else await until("the pulse of the badge", async () => (await animated()) > 0);
      await endProcess(page, "Kill now");
      await page.locator(".badge", { hasText: "killed" }).waitFor();
    }
    await page.emulateMedia({ reducedMotion: null });
  });

  test("returns the focus to the control that opened a dialog, a drawer, the menu or the search", async () => {
    await startOnPage(page, "exec cat");
    const focused = (): Promise<string> =>
      page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent");
    // Escape follows the click at once, as from a quick user.
    for (const name of ["Kill", "Share", "Input history", "Process tree", "More actions"]) {
      await button(page, name).focus();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").or(page.getByRole("menu")).waitFor({ state: "detached" });
      assert.equal(await focused(), name);
    }
    await button(page, "Find").click();
    await page.keyboard.type("nothing like it");
    await page.keyboard.press("Enter");
    await page.getByText("no match").waitFor();
    await assertNoAxeFaults(page, "the search");
    await page.keyboard.press("Escape");
    assert.equal(await focused(), "Terminal input");
    await endProcess(page, "Kill now");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
  });

  test("follows a process again whose page was left a moment before", async () => {
    const handle = await startOnPage(page, "exec cat");
    const driven = new URL(`#/process/${handle}`, page.url()).hash;
    await page.keyboard.type("before\n");
    await shows(page, /^before\nbefore$/m);
    for (let times = 1; times <= 3; times++) {
      // The page attaches while its detachment is in flight, and leaves before it is attached.
      await page.evaluate(`(() => {
        const hashes = ["#/server", "${driven}", "#/server", "${driven}"];
        const next = () => { location.hash = hashes.shift(); if (hashes.length > 0) setTimeout(next); };
        next();
      })()`);
      await page.getByRole("heading", { name: "exec cat" }).waitFor();
      await button(page, "Hand back").waitFor();
      await page.keyboard.type(`again ${times}\n`);
      await shows(page, new RegExp(`^again ${times}\nagain ${times}$`, "m"));
    }
    await endProcess(page, "Kill now");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
  });

  test("draws the screen first, and earlier output on demand", async () => {
    const lines = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done";
    const handle = await start(`${lines}; printf '\\033[3;5Hhere'; exec cat`, undefined, {}, "here");
    await goTo(page, handle);
    await shows(page, /^line 478\nlinehere\nline 480$/m);
    await button(page, "Find").click();
    const find = page.getByLabel("Find in the output");
    const finds = async (text: string) => {
      await find.fill(text);
      await find.press("Enter");
      return (await find.getAttribute("aria-invalid")) === "false";
    };
    assert.equal(await finds("line 7"), false);
    await selectAction(page, "Load earlier output");
    await until("the earlier output", () => finds("line 7"));
    await button(page, "More actions").click();
    assert.equal(await page.getByRole("menuitem", { name: "Load earlier output" }).count(), 0);
    await page.keyboard.press("Escape");
  });

  test("outlines a terminal that is smaller than the frame, and keeps its size when the drawer opens", async () => {
    await goTo(page, await start("exec cat", { rows: 10, cols: 30 }));
    await page.getByText("viewer · 30×10").waitFor();
    await page.locator(".terminal.smaller").waitFor();
    await page.getByRole("button", { name: "Take over" }).click();
    await until("the size of the frame", async () => !/ 30×10$/.test(await state(page)));
    assert.equal(await page.locator(".terminal.smaller").count(), 0);
    const before = await state(page);
    const box = () => page.locator(".frame > .terminal").boundingBox();
    const boxBefore = await box();
    for (const name of ["Share", "Input history", "Process tree"]) {
      await button(page, name).click();
      await page.getByRole("dialog", { name }).waitFor();
      assert.deepEqual([await state(page), await box()], [before, boxBefore], name);
      await assertNoAxeFaults(page, `the drawer ${name}`);
    }
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });

  test("lists network targets with their decisions and the number of requests", async () => {
    const proxy = {
      enabled: true,
      enableSocks5: true,
      enableSocks5Udp: false,
      allowUpstreamProxy: false,
      dangerouslyAllowAllUnixSockets: false,
      mode: "full",
      allowLocalBinding: false,
      domains: { "denied.test": "deny" },
    } as const;
    const script =
      "for host in other.test other.test denied.test; do curl -s http://$host/ >/dev/null; done; echo end; exec cat";
    const handle = await start(script, undefined, { networkProxy: { proxy } });
    await goTo(page, handle);
    await shows(page, /^end$/m);
    await selectAction(page, "Network");
    await page.getByRole("row", { name: "other.test:80 http blocked not allowed 2" }).waitFor();
    await page.getByRole("row", { name: "denied.test:80 http blocked denied 1" }).waitFor();
    await assertNoAxeFaults(page, "the drawer with network targets");
    await page.keyboard.press("Escape");
  });

  test("asks before it ends a process, and sends SIGTERM first", async () => {
    await startOnPage(page, "trap 'echo cleaned up; exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    await shows(page, /^ready$/m);
    await button(page, "Kill").click();
    await page.getByRole("heading", { name: "End this process?" }).waitFor();
    await assertNoAxeFaults(page, "the kill dialog");
    await button(page, "Cancel").click();
    await page.getByText(/driver · /).waitFor();
    await endProcess(page, "Terminate");
    await shows(page, /^cleaned up$/m);
    await page.locator(".badge", { hasText: "killed" }).waitFor();
    for (const name of ["Hand back", "Take over", "Interrupt", "Kill"])
      assert.equal(await button(page, name).count(), 0);
  });

  test("lists live share links with their guests, copies a link and revokes it", async () => {
    await startOnPage(page, "echo shared; exec cat");
    await button(page, "Share").click();
    await page.getByText("No link grants access to this process.").waitFor();
    await page.getByLabel("Guests may").selectOption("driver");
    await page.getByLabel("For").selectOption("1 day");
    await button(page, "Create link").click();
    const link = page.getByLabel(/Every holder of this link/);
    await opened.browser.grantPermissions(["clipboard-read", "clipboard-write"]);
    await button(page, "Copy").click();
    await button(page, "Copied").waitFor();
    const url = await link.inputValue();
    assert.equal(await page.evaluate("navigator.clipboard.readText()"), url);
    await page.getByText(/watch and type · expires in 23h\S+ · 0 guests · by local/).waitFor();
    await using guests = await openBrowser();
    const guest = await guests.browser.newPage();
    await guest.goto(url);
    await shows(guest, /^shared$/m);
    await page.getByText(/watch and type.* · 1 guest · /).waitFor();
    await keepScreenshot(page, "share");
    await page.getByRole("button", { name: /^Revoke link/ }).click();
    await page.getByText("No link grants access to this process.").waitFor();
    await guest.getByText("This link does not work").waitFor();
    assert.equal(await link.count(), 0);
  });

  test("shows a banner while it reconnects, and continues without loss", async () => {
    const handle = await start("n=0; while read -r _; do n=$((n+1)); echo answer $n; done");
    await using proxy = await CuttingProxy.to(server.url);
    const other = await opened.browser.newPage();
    const secret: Record<string, string> = await page.evaluate("({ ...localStorage })");
    const origin = new URL(proxy.url.replace(/^ws/, "http")).origin;
    await other.addInitScript(`Object.assign(localStorage, ${JSON.stringify(secret)})`);
    await other.goto(`${origin}/#/process/${handle}`);
    await button(other, "Take over").click();
    await other.getByText("you are the driver").waitFor();
    await other.keyboard.type("\n");
    await shows(other, /^answer 1$/m);
    const box = () => other.locator(".frame > .terminal").boundingBox();
    const before = await box();
    proxy.isClosed = true;
    proxy.cut();
    await other.getByText("Connection lost. Reconnecting…").waitFor();
    assert.deepEqual(await box(), before, "the banner covers the terminal and does not resize it");
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    await client.attach(handle, { role: "driver" }).then(async (driver) => {
      await driver.write(Buffer.from("\n"));
      await driver.detach();
    });
    proxy.isClosed = false;
    await shows(other, /^answer 1\n\n?answer 2$/m);
    await other.getByText("Connection lost. Reconnecting…").waitFor({ state: "detached" });
    await other.close();
  });

  test("fits a desktop, a tablet and a phone, with two rows of chrome while driving", async () => {
    await startOnPage(page, "echo hi; exec cat - /dev/null /dev/null /dev/null /dev/null /dev/null /dev/null");
    await page.keyboard.type("typed\n");
    for (const size of [...SIZES, { width: 1080, height: 700 }, { width: 870, height: 700 }]) {
      await page.setViewportSize(size);
      await assertNoHorizontalScrolling(page);
      const bar = page.locator(".bar");
      await until(`the toolbar to fit ${size.width} px`, () => bar.evaluate((it) => it.scrollWidth <= it.clientWidth));
      await assertNoAxeFaults(page, `a process at ${size.width} px`);
      const frame = await page.locator(".frame").boundingBox();
      assert.ok(frame && frame.y < 110, `the terminal starts at ${frame?.y} px`);
      await keepScreenshot(page, `process-${size.width}`);
    }
    // While the user drives, a phone shows the toolbar and the keys only. The keys are one row that scrolls.
    await page.setViewportSize(SIZES[2]);
    await page.getByRole("banner").waitFor({ state: "hidden" });
    await button(page, "Hand back").click();
    await page.getByRole("banner").waitFor();
    await button(page, "Take over").click();
    await page.getByRole("banner").waitFor({ state: "hidden" });
    const frame = await page.locator(".frame").boundingBox();
    assert.ok(frame && frame.height > SIZES[2].height - 100, `the terminal is ${frame?.height} px high`);
    const keys = page.getByRole("toolbar", { name: "Keys" });
    await keys.waitFor();
    assert.ok(await keys.evaluate((it) => it.scrollWidth > it.clientWidth && it.clientHeight < 48), "one row of keys");
    await keys.getByRole("button", { name: "→" }).scrollIntoViewIfNeeded();
    assert.ok(await keys.evaluate((it) => it.scrollLeft > 0), "the keys scroll");
    await assertNoHorizontalScrolling(page);
    // The drawer of a phone shows whole tables.
    for (const name of ["Input history", "Process tree"]) {
      await selectAction(page, name);
      const drawer = page.getByRole("dialog", { name });
      await drawer.getByRole("table").waitFor();
      assert.equal(await drawer.locator(".content").evaluate((it) => it.scrollWidth > it.clientWidth), false, name);
      await assertNoHorizontalScrolling(page);
      await drawer.getByRole("button", { name: "Close" }).click();
    }
    await selectAction(page, "Find");
    await page.getByLabel("Find in the output").fill("typed");
    await page.keyboard.press("Enter");
    await assertNoHorizontalScrolling(page);
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Back to the processes" }).click();
    await page.getByRole("heading", { name: "Processes" }).waitFor();
    await page.setViewportSize({ width: 1100, height: 700 });
  });
});
