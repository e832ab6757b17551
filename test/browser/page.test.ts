/** What the page is made of and whom it asks. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { webFolder } from "../../src/host/web-folder.ts";
import { openBrowser, serveConsole, signedIn, startOnPage } from "./browser.ts";

/** The whole console, as it goes over the wire. */
const MOST_BYTES = 450 * 1024;

describe("the console's page", { timeout: 120_000 }, () => {
  let opened: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    opened = await openBrowser();
  });
  after(async () => {
    await opened[Symbol.asyncDispose]();
  });

  test("is small, and has no script in it", (context) => {
    const folder = webFolder();
    const sizes = readdirSync(folder).map((name) => gzipSync(readFileSync(join(folder, name))).length);
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    context.diagnostic(`the page is ${bytes} bytes, gzipped`);
    assert.ok(bytes < MOST_BYTES, `${bytes} bytes`);
    const html = readFileSync(join(folder, "index.html"), "utf8");
    assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|<style|\son\w+=|https?:/);
  });

  test("sends requests to no host but its own server, on any of its pages", async () => {
    const { server, loginUrl } = await serveConsole("--jobs", "/nonexistent");
    await using _ = server;
    const asked = new Set<string>();
    opened.browser.on("request", (request) => asked.add(new URL(request.url()).origin));
    const { page, problems } = await signedIn(opened.browser, loginUrl);
    await startOnPage(page, "echo http://elsewhere.invalid/; sleep 100");
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByText("No job is here").waitFor();
    await page.getByRole("link", { name: "Server" }).click();
    await page.getByRole("cell", { name: "procwire_processes", exact: true }).waitFor();
    assert.deepEqual([...asked], [new URL(loginUrl).origin]);
    // Anything that its content security policy refused would be reported here.
    assert.deepEqual(problems, []);
    await page.close();
  });
});
