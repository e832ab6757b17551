/** Connections, console sessions and share links in the console, and their revocation. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { writeSecret } from "../support/auth/secret-file.ts";
import { ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { keepScreenshot, openBrowser, SIZES, signedIn } from "./browser.ts";

const USER = "user-user-user-user-user-user-user";
const OPERATOR = "operator-operator-operator-operator";

describe("the access page", { timeout: 600_000 }, () => {
  const scratch = scratchDirectory();
  let own: Awaited<ReturnType<typeof openBrowser>>;
  let other: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    [own, other] = await Promise.all([openBrowser(), openBrowser()]);
  });
  after(async () => {
    await Promise.all([own[Symbol.asyncDispose](), other[Symbol.asyncDispose]()]);
    scratch[Symbol.dispose]();
  });

  test("lists what the principal may see, updates in place, and revokes after a confirmation", async () => {
    const file = (name: string, text: string) => writeSecret(scratch.path, name, text);
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", file("user", USER)];
    const args = ["--listen", "ws://127.0.0.1:0", "--web", ...auth, "--operator-token-file", file("op", OPERATOR)];
    await using server = await new ServeChild(args).listening();
    const pageUrl = `${server.url.replace(/^ws/, "http")}/#token=`;
    const connect = (authToken: string) => {
      const states: string[] = [];
      const onConnectionState = ({ type }: { type: string }) => void states.push(type);
      const opened = NodeExecServerClient.connectWebSocket({ url: server.url, authToken, onConnectionState });
      return opened.then((client) => ({ client, states, [Symbol.asyncDispose]: () => client.close() }));
    };
    await using first = await connect(USER);
    const started = { processId: "p", argv: ["/bin/sleep", "600"], cwd: "/", env: {}, tty: false };
    const { handle } = await first.client.start(started);
    const { token, shareId = "" } = await first.client.share(handle ?? "", { role: "viewer", ttlMs: 3600_000 });
    await using guest = await connect(token);

    const { page } = await signedIn(own.browser, `${pageUrl}${OPERATOR}`);
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Access" }).click();
    const row = (text: string | RegExp) => page.getByRole("row").filter({ hasText: text });
    await row("(this browser)").getByText("operator", { exact: true }).waitFor();
    assert.equal(await row("(this connection)").count(), 1);
    await row("Share link").getByText("watch, 1 guest").waitFor();
    assert.match(await row("Share link").innerText(), /token[\s\S]*in (?:59m|1h)/);
    for (const size of SIZES) {
      await page.setViewportSize(size);
      await keepScreenshot(page, `access-${size.width}`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });

    // A new connection appears, and the other rows stay the same elements.
    await page.evaluate("document.querySelector('tbody tr').dataset.kept = 'yes'");
    const userRows = row("Connection").filter({ has: page.getByRole("cell", { name: "token", exact: true }) });
    assert.equal(await userRows.count(), 1);
    await using second = await connect(USER);
    await until("the new connection", async () => (await userRows.count()) === 2);
    assert.equal(await page.locator("tr[data-kept]").count(), 1);

    // A user sees its own entries and the guests of its links, not the operator.
    const user = await signedIn(other.browser, `${pageUrl}${USER}`);
    await user.page.goto(`${pageUrl.replace("#token=", "#/access")}`);
    await user.page.getByText("(this connection)").waitFor();
    assert.equal(await user.page.getByRole("cell", { name: "operator" }).count(), 0);
    assert.equal(await user.page.getByRole("cell", { name: shareId, exact: true }).count(), 1);

    const confirm = async (name: string) => {
      await page.getByRole("button", { name: `Revoke ${name}`, exact: true }).click();
      const dialog = page.getByRole("dialog", { name: `Revoke ${name}?` });
      await dialog.getByRole("button", { name: "Revoke" }).click();
    };
    // Cancel revokes nothing.
    await page.getByRole("button", { name: `Revoke ${shareId}`, exact: true }).click();
    await page.keyboard.press("Escape");
    assert.equal(await row("Share link").count(), 1);
    await confirm(shareId);
    await row("Share link").waitFor({ state: "detached" });
    await until("the guest is closed", () => guest.states.includes("disconnected"));

    const { accesses } = await second.client.call("access/list", {});
    const current = accesses.find(({ isCurrent }) => isCurrent)?.accessId ?? "";
    await confirm(current);
    await until("the connection is closed", () => second.states.includes("disconnected"));
    await page.getByRole("button", { name: `Revoke ${current}`, exact: true }).waitFor({ state: "detached" });
    assert.deepEqual(
      first.states.filter((state) => state === "disconnected"),
      [],
    );

    // The own console session can be revoked too.
    const ownRow = await row("(this browser)").getByRole("button").getAttribute("aria-label");
    await confirm((ownRow ?? "").replace("Revoke ", ""));
    await page.getByRole("button", { name: "Sign in" }).waitFor();
  });
});
