/** The web console in a real browser on a real server. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { readCast } from "../../src/client/recording/cast-reader.ts";
import { until } from "../support/system/until.ts";
import {
  assertNoAxeFaults,
  endProcess,
  keepScreenshot,
  openBrowser,
  screenText,
  sectionLink,
  selectAction,
  serveConsole,
  signedIn,
  startOnPage,
} from "./browser.ts";

describe("the web console", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("opens once by the printed URL, and keeps the token out of the address bar", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    assert.doesNotMatch(page.url(), /token/);
    await page.reload();
    await sectionLink(page, "Processes").waitFor();
    await page.getByRole("button", { name: "Account local" }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    await assertNoAxeFaults(page, "the sign-in");
    await page.goto("about:blank");
    await page.goto(loginUrl);
    await page.getByText("already used").waitFor();
    await assertNoAxeFaults(page, "the sign-in with a refusal");
    // The server closes the connection at the sign-out. The page may try to resume it before the sign-in page loads.
    assert.deepEqual(
      problems.filter((problem) => !/401|HTTP Authentication failed/.test(problem)),
      [],
    );
    assert.ok(!server.stderr.replaceAll(loginUrl, "").includes(loginUrl.split("token=")[1] ?? "?"));
    await page.close();
  });

  test("runs a shell that accepts input, resizes, and is shown again after a reload", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "");
    await page.keyboard.type("printf '\\033[31mred\\033[0m %s\\n' $((6*7)); stty size\n");
    await until("the answer", async () => /red 42/.test(await screenText(page)));
    const sizeBefore = /\n(\d+ \d+)\n/.exec(await screenText(page))?.[1];
    assert.ok(sizeBefore, await screenText(page));
    await page.setViewportSize({ width: 800, height: 500 });
    await page.locator(".xterm-helper-textarea").focus();
    await until("the terminal is smaller", async () => {
      // Each command is typed once the output of the last one is shown.
      await page.keyboard.type("clear; stty size; echo ''done\n");
      await until("its output", async () => /^done$/m.test(await screenText(page)));
      const found = /^(\d+ \d+)$/m.exec(await screenText(page))?.[1];
      await page.keyboard.type("clear\n");
      await until("a clear screen", async () => !/^done$/m.test(await screenText(page)));
      return found !== undefined && found !== sizeBefore;
    });
    await page.keyboard.type("clear; echo be''fore\n");
    await until("the echo of the input", async () => /^before$/m.test(await screenText(page)));
    await keepScreenshot(page, "terminal");
    await page.reload();
    await page.getByRole("button", { name: "Hand back" }).waitFor();
    await until("the same screen again", async () => /^before$/m.test(await screenText(page)));
    assert.deepEqual(problems, []);
    await page.setViewportSize({ width: 1100, height: 700 });
    await page.close();
  });

  test("answers a terminal query once while it drives, and not again after a reload", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "exec bash --norc");
    // The script disables echo before it prints the query, because the reply may arrive before `read` runs.
    const ask = "stty -echo -icanon; printf '\\033[6n'; read -rd R at; stty sane; echo at $" + "{at#*[}";
    await page.keyboard.type(`clear; ${ask}; read -r next; echo "next <$next>"\n`);
    await until("the reply to the query", async () => /^at \d+;\d+$/m.test(await screenText(page)));
    await page.reload();
    await page.getByText("you are the driver").waitFor();
    await until("the screen is drawn again", async () => /^at \d+;\d+$/m.test(await screenText(page)));
    await page.locator(".xterm-helper-textarea").focus();
    await page.keyboard.type("typed\n");
    await until("the typed input without another reply", async () => /^next <typed>$/m.test(await screenText(page)));
    await page.close();
  });

  test("shows one process to many users, who can take over from each other", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page: first } = await signedIn(opened.browser, loginUrl);
    await startOnPage(first, "exec cat");
    const second = await opened.browser.newPage();
    await second.goto(first.url());
    await second.getByRole("button", { name: "Take over" }).waitFor();
    await first.bringToFront();
    await first.keyboard.type("from the first\n");
    for (const page of [first, second])
      await until(
        "the output on both pages",
        async () => (await screenText(page)).split("from the first").length === 3,
      );
    await second.bringToFront();
    await second.getByRole("button", { name: "Take over" }).click();
    await first.getByText("you are viewer now").waitFor();
    await first.getByRole("button", { name: "Take over" }).waitFor();
    await second.locator(".xterm-helper-textarea").focus();
    await second.keyboard.type("from the second\n");
    for (const page of [first, second])
      await until("both see that", async () => (await screenText(page)).split("from the second").length === 3);
    await endProcess(second, "Kill now");
    for (const page of [first, second]) {
      await page.locator(".badge", { hasText: "killed" }).waitFor();
      assert.equal(await page.getByRole("button", { name: "Take over" }).count(), 0);
    }
    await first.close();
    await second.close();
  });

  test("shows the driver's terminal size to all viewers, also after a change, and scales it to their page", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page: driver, problems } = await signedIn(opened.browser, loginUrl);
    const ruler = "trap 'printf \"%s:%s\\n\" $(stty size)' WINCH; while :; do sleep 0.1; done";
    const handle = await startOnPage(driver, ruler);
    const viewers = [await opened.browser.newPage(), await opened.browser.newPage()];
    await viewers[0]?.setViewportSize({ width: 600, height: 800 });
    for (const viewer of viewers) {
      await viewer.goto(driver.url());
      await viewer.getByRole("button", { name: "Take over" }).waitFor();
      await viewer.getByText(/viewer · \d+×\d+/).waitFor();
    }
    const state = async (page: Page) => (await page.locator("output.state").textContent()) ?? "";
    const sizeOf = async (page: Page) => / (\d+×\d+)/.exec(await state(page))?.[1];
    const countRows = async (page: Page) => (await screenText(page)).split("\n").length;
    for (const [width, height] of [
      [1300, 900],
      [700, 500],
      [1000, 650],
    ] as const) {
      const before = await sizeOf(driver);
      await driver.setViewportSize({ width, height });
      await until("the driver's terminal has another size", async () => (await sizeOf(driver)) !== before);
      // The size may change twice during layout; the program prints the final size.
      await until("the program and the pages agree", async () => {
        const size = await sizeOf(driver);
        const [cols, rows] = size?.split("×") ?? [];
        const reported = [...(await screenText(driver)).matchAll(/^(\d+):(\d+)$/gm)].at(-1);
        const all = await Promise.all(viewers.map(sizeOf));
        return reported?.[1] === rows && reported?.[2] === cols && all.every((one) => one === size);
      });
      const rows = Number((await sizeOf(driver))?.split("×")[1]);
      for (const viewer of viewers) {
        await until("as many rows", async () => (await countRows(viewer)) === rows);
        const [available, screen] = await Promise.all([
          viewer.locator(".terminal:not(.xterm)").boundingBox(),
          viewer.locator(".xterm-screen").boundingBox(),
        ]);
        assert.ok(available && screen);
        assert.ok(
          screen.width <= available.width && screen.height <= available.height,
          `${JSON.stringify(screen)} in ${JSON.stringify(available)}`,
        );
      }
    }
    // A reload replays the earlier output and ends with the current size.
    const [viewer] = viewers;
    assert.ok(viewer);
    const size = await sizeOf(driver);
    await viewer.reload();
    await until("the driver's size again", async () => (await sizeOf(viewer)) === size);
    await driver.getByRole("button", { name: "Hand back" }).click();
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    await using other = await client.attach(handle, { role: "driver", size: { rows: 9, cols: 33 } });
    for (const page of [driver, ...viewers])
      await until("the size of the other driver", async () => (await sizeOf(page)) === "33×9");
    assert.equal(other.role, "driver");
    assert.deepEqual(problems, []);
    for (const page of [driver, ...viewers]) await page.close();
  });

  test("offers the keys that a phone lacks, and sends them", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "stty raw -echo; exec cat -v");
    await page.setViewportSize({ width: 390, height: 800 });
    const key = (name: string) => page.getByRole("button", { name, exact: true });
    await page.getByRole("button", { name: "Hand back" }).click();
    await page.getByText("you are a viewer again").waitFor();
    assert.ok(await key("Esc").isDisabled());
    assert.equal(await key("Esc").getAttribute("title"), "take over to type");
    await page.getByRole("button", { name: "Take over" }).click();
    await page.getByText("you are the driver").waitFor();
    for (const name of ["Esc", "Tab", "Ctrl-C", "Ctrl-D", "←", "↓", "↑", "→"]) await key(name).click();
    await page.locator(".xterm-helper-textarea").focus();
    await key("Ctrl").click();
    assert.equal(await key("Ctrl").getAttribute("aria-pressed"), "true");
    await page.keyboard.type("xy");
    await until("all of them", async () =>
      /\^\[\s+\^C\^D\^\[\[D\^\[\[B\^\[\[A\^\[\[C\^Xy/.test((await screenText(page)).replaceAll("\n", "")),
    );
    assert.equal(await key("Ctrl").getAttribute("aria-pressed"), "false");
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("works with the keyboard alone, into the terminal and out of it", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const focused = (): Promise<string> =>
      page.evaluate(
        `(() => { const it = document.activeElement; return it.getAttribute("aria-label") ?? it.labels?.[0]?.textContent.trim() ?? it.textContent.trim(); })()`,
      );
    const tabTo = async (name: string) => {
      for (let presses = 0; presses < 60; presses++) {
        if ((await focused()) === name) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`no way to ${name} by Tab`);
    };
    await tabTo("Processes");
    await page.keyboard.press("Enter");
    await tabTo("Command (empty: a shell)");
    await page.keyboard.type("exec cat");
    await page.keyboard.press("Enter");
    await page.getByText("you are the driver").waitFor();
    await page.keyboard.type("a");
    await page.keyboard.press("Tab");
    await page.keyboard.type("b\n");
    await until("it is echoed", async () => /^a\s+b\na\s+b$/m.test(await screenText(page)));
    await page.keyboard.press("Control+]");
    assert.equal(await focused(), "Hand back");
    await page.keyboard.press("Enter");
    await page.getByText("you are a viewer again").waitFor();
    // A viewer moves into the terminal and out of it with Tab.
    await tabTo("Terminal input");
    await page.keyboard.press("Tab");
    assert.notEqual(await focused(), "Terminal input");
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Shift+Tab");
    await tabTo("Kill");
    await page.keyboard.press("Enter");
    await tabTo("Terminate");
    await page.keyboard.press("Enter");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("lists the limits, output rate, slowest reader and exit reason of a process, and its page shows gaps and a search", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const start = (processId: string, script: string, more: object = {}) =>
      client.start({
        ...{ processId, argv: ["/bin/sh", "-c", script], cwd: "/", env: { PATH: "/usr/bin:/bin" } },
        ...{ tty: false, ...more },
      });
    const limited = await start("limited", "head -c 100000 /dev/zero; sleep 100", {
      limits: { outputBytes: 50_000 },
    });
    const within = await start("within", "sleep 100", { limits: { openFiles: 77, wallTimeMs: 3_600_000 } });
    const steady = await start("steady", "while :; do echo some output; sleep 0.05; done");
    const flood = await start(
      "flood",
      "head -c 3000000 /dev/zero | tr '\\0' '\\r'; echo; echo needle in it; exec sleep 100",
      { tty: true },
    );
    const held = await start("held", "yes");
    await using reader = await NodeExecServerClient.connectWebSocket({ url: server.url });
    // The paused lossless viewer reads nothing, so it is the slowest reader.
    const slow = await reader.attach(String(held.handle), { role: "driver" });
    using _cursor = { [Symbol.dispose]: () => void slow.detach().catch(() => undefined) };
    const taken = slow.events({ lossless: true });
    await taken.next();
    await sectionLink(page, "Processes").click();
    await page.getByLabel("Show ended processes").check();
    const row = (handle: unknown, text: string) =>
      page.getByRole("row", { name: new RegExp(`${handle}.*${text}`) }).waitFor();
    await row(limited.handle, "terminated by the limit outputBytes");
    await row(limited.handle, "48.8 KiB of output");
    await row(within.handle, "1h00m of time, 77 files|77 files, 1h00m of time");
    await row(steady.handle, "running.*\\d+ ?s.*[1-9]\\d* B/s");
    await row(held.handle, "paused by a slow reader");
    await page.getByRole("link", { name: String(flood.handle) }).click();
    await until("the end of the output", async () => /needle in it/.test(await screenText(page)));
    const [file] = await Promise.all([page.waitForEvent("download"), selectAction(page, "Download screen")]);
    await page.getByRole("button", { name: "Find", exact: true }).click();
    const find = page.getByLabel("Find in the output");
    await find.fill("needle in");
    await find.press("Enter");
    assert.equal(await find.getAttribute("aria-invalid"), "false");
    await find.fill("no such text");
    await find.press("Enter");
    await page.getByText("no match").waitFor();
    assert.equal(await find.getAttribute("aria-invalid"), "true");
    assert.ok(readFileSync(await file.path(), "utf8").length > 0);
    // The process printed more than the server retains before this page attached.
    const late = await opened.browser.newPage();
    await late.goto(page.url());
    await until("the end of the output on the second page", async () => /needle in it/.test(await screenText(late)));
    await selectAction(late, "Load earlier output");
    await late.getByRole("button", { name: "Find", exact: true }).click();
    const search = late.getByLabel("Find in the output");
    await search.fill("no longer retained");
    await until("the notice of the gap", async () => {
      // The search finds only output that is loaded.
      await search.press("Enter");
      return / MiB no longer retained/.test(await screenText(late));
    });
    assert.deepEqual(problems, []);
    await taken.return?.();
    await late.close();
    await page.close();
  });

  test("shows the end of bulk output, and never executes output as code", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const script =
      "seq 1 300000; printf '<img src=x onerror=alert(1)>\\n\\033]52;c;aGk=\\007\\033]0;<b>title</b>\\007end of it\\n'; sleep 100";
    await startOnPage(page, script);
    await until("the end of the flood", async () => /^end of it$/m.test(await screenText(page)));
    assert.match(await screenText(page), /^<img src=x onerror=alert\(1\)>$/m);
    assert.match(await screenText(page), /^300000$/m);
    assert.equal(await page.locator("img").count(), 0);
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("shows the input history and the process tree, and offers a recording", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const handle = await startOnPage(page, "sleep 1234 & exec cat");
    await page.keyboard.type("typed here\n");
    await until("it is echoed", async () => (await screenText(page)).split("typed here").length === 3);
    await page.getByRole("button", { name: "Input history" }).click();
    await page
      .getByRole("row", { name: /local.*driver.*procwire-console/ })
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Process tree" }).click();
    await page.getByRole("row", { name: /sleep 1234 sleeping/ }).waitFor();
    await assertNoAxeFaults(page, "a process with its drawer open");
    await keepScreenshot(page, "process");
    const [file] = await Promise.all([page.waitForEvent("download"), selectAction(page, "Download recording")]);
    assert.equal(file.suggestedFilename(), `${handle}.cast`);
    const cast = readCast(readFileSync(await file.path(), "utf8"));
    const output = cast.events.map(({ code, data }) => (code === "o" ? data : "")).join("");
    assert.equal(output.split("typed here").length, 3);
    assert.ok(cast.events.every(({ code }) => code !== "i"));
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("shares one process by a link, as viewer or driver, and nothing else", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page } = await signedIn(opened.browser, loginUrl);
    const handle = await startOnPage(page, "echo shared; exec cat");
    await page.getByRole("button", { name: "Share" }).click();
    await assertNoAxeFaults(page, "the share form");
    const makeLink = async (role: string) => {
      await page.getByLabel("Guests may").selectOption(role);
      await page.getByRole("button", { name: "Create link" }).click();
      const link = page.getByLabel(/Every holder of this link/);
      await until("a new link", async () => (await link.inputValue().catch(() => "")) !== "");
      await assertNoAxeFaults(page, `the share form with a link for a ${role}`);
      const address = await link.inputValue();
      await page.reload();
      await page.getByRole("button", { name: "Share" }).click();
      return address;
    };
    // A second browser, which has no cookie.
    await using guests = await openBrowser();
    const guest = await guests.browser.newPage();
    await guest.goto(await makeLink("viewer"));
    await until("it is shown", async () => /^shared$/m.test(await screenText(guest)));
    assert.equal(new URL(guest.url()).hash, `#/process/${handle}`);
    assert.equal(await sectionLink(guest, "Jobs").count(), 0);
    await assertNoAxeFaults(guest, "a guest's page");
    const assertViewerOnly = async () => {
      await guest.getByText("This link only lets you watch").waitFor();
      for (const name of ["Take over", "Interrupt", "Kill", "Share"])
        assert.equal(await guest.getByRole("button", { name, exact: true }).count(), 0, name);
      assert.equal(await guest.locator(".keys").count(), 0, "the keys of a phone");
    };
    await assertViewerOnly();
    await guest.reload();
    await until("it is shown again", async () => /^shared$/m.test(await screenText(guest)));
    await assertViewerOnly();
    await guest.goto("about:blank");
    await guest.goto(await makeLink("driver"));
    await guest.getByRole("button", { name: "Take over" }).click();
    await guest.getByText("you are the driver").waitFor();
    await guest.locator(".xterm-helper-textarea").focus();
    await guest.keyboard.type("by a guest\n");
    for (const one of [page, guest])
      await until("the output on both pages", async () => (await screenText(one)).split("by a guest").length === 3);
    await endProcess(guest, "Terminate");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
    await guest.reload();
    await guest.getByText("This link does not work").waitFor();
    await assertNoAxeFaults(guest, "a guest's page after its link's end");
    await page.close();
  });

  test("lists processes with the metrics of their owners and of the server", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const handle = await startOnPage(page, "echo hello there; sleep 100");
    await sectionLink(page, "Processes").click();
    await page.getByRole("row", { name: new RegExp(`${handle}.*hello there.*running.*local`) }).waitFor();
    const asking = await startOnPage(page, "read -rs word; exec cat");
    await sectionLink(page, "Processes").click();
    await page.getByRole("row", { name: new RegExp(`${asking}.*waiting for a password`) }).waitFor();
    await page.getByRole("link", { name: asking }).click();
    await endProcess(page, "Kill now");
    await page.locator(".badge", { hasText: "killed" }).waitFor();
    await sectionLink(page, "Processes").click();
    await page.getByLabel("Show ended processes").check();
    await page.getByRole("row", { name: new RegExp(`${asking}.*terminated`) }).waitFor();
    await keepScreenshot(page, "processes");
    await sectionLink(page, "Server").click();
    await page.getByText("Raw metrics").click();
    await page.getByRole("cell", { name: "procwire_processes", exact: true }).waitFor();
    await keepScreenshot(page, "server");
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("has no accessibility violation in the light and the dark theme, and fits a phone", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page } = await signedIn(opened.browser, loginUrl);
    await sectionLink(page, "Processes").click();
    await assertNoAxeFaults(page, "processes");
    await sectionLink(page, "Server").click();
    await page.getByText("Raw metrics").click();
    await page.getByRole("cell", { name: "procwire_processes", exact: true }).waitFor();
    await assertNoAxeFaults(page, "server");
    await startOnPage(page, "echo hi; sleep 100");
    await until("its output", async () => /hi/.test(await screenText(page)));
    await assertNoAxeFaults(page, "a process");
    await page.goto(`${new URL(page.url()).origin}/#/process/aaaaaaaaaaaa`);
    await page.getByRole("heading", { name: "Process aaaaaaaaaaaa" }).waitFor();
    await assertNoAxeFaults(page, "a process that is not there");
    await page.goBack();
    await page.setViewportSize({ width: 390, height: 800 });
    await page.getByRole("button", { name: "Esc" }).waitFor();
    const overflow = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
    assert.equal(overflow, false, "the page is wider than a phone");
    await keepScreenshot(page, "phone");
    await page.close();
  });
});
