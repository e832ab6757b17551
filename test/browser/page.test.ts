/** The files of the page and the hosts that it requests. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { consoleAssetsPath } from "../../src/host/console-assets.ts";
import { ServeChild } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { loginUrlOf, openBrowser, screenText, sectionLink, serveConsole, signedIn, startOnPage } from "./browser.ts";

/** Maximum gzipped size of the whole console. */
const MAX_GZIPPED_BYTES = 450 * 1024;

describe("the console's page", { timeout: 600_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("is below its size limit, and contains no inline script", (context) => {
    const directory = consoleAssetsPath();
    const sizes = readdirSync(directory).map((name) => gzipSync(readFileSync(join(directory, name))).length);
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    context.diagnostic(`the page is ${bytes} bytes, gzipped`);
    assert.ok(bytes < MAX_GZIPPED_BYTES, `${bytes} bytes`);
    const html = readFileSync(join(directory, "index.html"), "utf8");
    assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|<style|\son\w+=|https?:/);
  });

  test("sends requests only to its own server, on each of its pages", async () => {
    const { server, loginUrl } = await serveConsole("--jobs", "/nonexistent");
    await using _ = server;
    const requested = new Set<string>();
    opened.browser.on("request", (request) => requested.add(new URL(request.url()).origin));
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "echo http://elsewhere.invalid/; sleep 100");
    await sectionLink(page, "Jobs").click();
    await page.getByText("No jobs").waitFor();
    await sectionLink(page, "Server").click();
    await page.getByText("Raw metrics", { exact: true }).click();
    await page.getByRole("cell", { name: "procwire_processes", exact: true }).waitFor();
    assert.deepEqual([...requested], [new URL(loginUrl).origin]);
    // The list also contains violations of the content security policy.
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("opens a link in a program's output in a new tab, which cannot reach the console", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    const link = `${new URL(loginUrl).origin}/healthz`;
    await startOnPage(page, `echo ${link}; sleep 100`);
    await until("it is shown", async () => (await screenText(page)).includes(link));
    const [tab] = await Promise.all([
      opened.browser.waitForEvent("page"),
      // The link begins in the first cell of the first line.
      page.locator(".xterm-screen").click({ position: { x: 30, y: 8 } }),
    ]);
    await tab.waitForURL(link);
    assert.equal(await tab.evaluate("opener"), null);
    await tab.close();
    assert.deepEqual(problems, []);
    await page.close();
  });

  test("reports degraded parts of its server with the reason", async () => {
    // A server without the launcher has no watchdog and is therefore degraded.
    const entry = ["bin/main.cjs", "dist/bin/procwire.cjs"];
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--web"], {
      command: [process.execPath, ...entry, "serve"],
      cwd: join(import.meta.dirname, "../.."),
    }).listening();
    const { page } = await signedIn(opened.browser, loginUrlOf(server));
    await sectionLink(page, "Server").click();
    await page.getByRole("heading", { name: "Degraded" }).waitFor();
    await page.getByText(/^no watchdog: processes may outlive this server/).waitFor();
    await page.close();
  });
});
