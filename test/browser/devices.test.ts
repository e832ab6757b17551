/** Sign-in, the list of devices and the link for another device, in Chromium. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { deviceName } from "../../src/web/devices/device-name.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { openBrowser, serveConsole, signedIn } from "./browser.ts";

describe("devices", () => {
  let own: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    own = await openBrowser();
  });
  after(() => own[Symbol.asyncDispose]());

  test("a used link names the command, and a link for another device signs it in until all are signed out", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { page, problems } = await signedIn(own.browser, loginUrl);
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Devices" }).click();
    const rows = page.getByRole("row");
    await rows.nth(1).getByText("(this browser)").waitFor();
    await page.getByRole("button", { name: "Add a device" }).click();
    const dialog = page.getByRole("dialog", { name: "Add a device" });
    const link = await dialog.getByLabel("Login link").inputValue();
    // No other computer reaches a loopback address.
    assert.equal(await dialog.getByRole("img").count(), 0);
    await dialog.getByText("works only on this computer").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();

    await using other = await openBrowser();
    const second = await signedIn(other.browser, link);
    await rows.nth(2).waitFor();
    assert.equal(await rows.count(), 3);
    mkdirSync("test-results", { recursive: true });
    await page.screenshot({ path: "test-results/devices.png" });

    // The link was used.
    const third = await other.browser.newPage();
    await third.goto("about:blank");
    await third.goto(`${new URL(link).origin}/#/processes`);
    await third.evaluate("localStorage.clear()");
    await third.goto("about:blank");
    await third.goto(link);
    await third
      .getByRole("alert")
      .getByText(/already used or expired; run `procwire console`/)
      .waitFor();
    await third.getByText("procwire console", { exact: true }).waitFor();
    await third.close();

    await page.getByRole("button", { name: "Sign out everywhere" }).click();
    const question = page.getByRole("dialog", { name: "Sign out everywhere?" });
    await question.getByRole("button", { name: "Sign out everywhere" }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    // The other browser loses its connection and asks for a sign-in too.
    await second.page.getByRole("button", { name: "Sign in" }).waitFor();
    assert.deepEqual(
      problems.filter((text) => !/401|WebSocket/.test(text)),
      [],
    );
    // A new URL of the command signs in again.
    const { stdout } = await runCli(["console", "--connect", server.url], { cwd: "." });
    await page.goto("about:blank");
    await page.goto(stdout.trim());
    await page.getByRole("link", { name: "Processes" }).waitFor();
  });

  test("a link of an address that other computers reach has a QR code", async () => {
    await using named = await openBrowser("--host-resolver-rules=MAP console.test 127.0.0.1");
    const { server, loginUrl } = await serveConsole("--allow-host", "console.test");
    await using _ = server;
    const { page } = await signedIn(named.browser, loginUrl.replace("127.0.0.1", "console.test"));
    await page.goto(`${new URL(page.url()).origin}/#/devices`);
    await page.getByRole("button", { name: "Add a device" }).click();
    await page.getByRole("img", { name: "QR code of the link" }).waitFor();
    // Without https, the browser offers this page no clipboard API.
    assert.equal(await page.evaluate("isSecureContext"), false);
    const link = await page.getByLabel("Login link").inputValue();
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    await page.screenshot({ path: "test-results/add-device.png" });
    await page.getByRole("button", { name: "Close" }).click();
    await page.goto(`${new URL(page.url()).origin}/#/processes`);
    const filter = page.getByLabel("Filter processes");
    await filter.focus();
    await page.keyboard.press("Control+V");
    assert.equal(await filter.inputValue(), link);
  });

  test("browsers have short names", () => {
    const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    const safari =
      "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1";
    assert.equal(deviceName(firefox), "Firefox on Linux");
    assert.equal(deviceName(safari), "Safari on iPhone");
    assert.equal(deviceName("curl/8.1"), "curl/8.1");
    assert.equal(deviceName(""), "unknown browser");
  });
});
