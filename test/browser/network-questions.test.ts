/** Network questions of a command in the console, against a client that asks a user elsewhere at the same time. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { CommandNetwork } from "../../src/tools/network/command-network.ts";
import { NetworkAnswers } from "../../src/tools/network/network-questions.ts";
import { type ApprovalAnswer, ApprovalGate, type ApprovalPolicy } from "../../src/tools/policy/approval.ts";
import { secretPath } from "../support/auth/secret-file.ts";
import { policy } from "../support/network/network-config.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import {
  assertDocumentFits,
  assertNoAxeFaults,
  assertNoHorizontalScrolling,
  keepScreenshot,
  openBrowser,
  SIZES,
  screenText,
  sectionLink,
  serveConsole,
  signedIn,
} from "./browser.ts";

/** A user elsewhere, whose prompts the test answers. */
class Elsewhere implements ApprovalPolicy {
  readonly prompts: { host: string; signal: AbortSignal | undefined; answer: (given: ApprovalAnswer) => void }[] = [];
  readonly combined = true;
  review = () => ({ type: "allow" }) as const;
  ask: ApprovalPolicy["ask"] = ({ network }, signal) =>
    new Promise((answer) => this.prompts.push({ host: network?.host ?? "", signal, answer }));
}

/** Starts a command whose network policy asks about every host. */
async function startAsking(url: string, script: string, approval: ApprovalPolicy) {
  const client = await NodeExecServerClient.connectWebSocket({ url });
  const gate = new ApprovalGate(approval);
  const argv = ["/bin/sh", "-c", script];
  const managed = new CommandNetwork({
    network: {
      type: "managed",
      layers: [{ fallback: "ask", allow: [], ask: [], deny: [], ports: null, methods: null }],
    },
    command: {
      ...{ kind: "command", cmd: script, argv, shell: "system", tty: false, commands: null, workdir: "/" },
      ...{ sandbox: "bubblewrap", sandboxWritable: false },
    },
    call: {},
    gate,
    answers: new NetworkAnswers(gate, () => undefined),
  });
  const process = await client.start({
    ...managed.startParams,
    ...{ processId: "p", argv, cwd: "/", tty: true, env: globalThis.process.env as Record<string, string> },
    // Loopback is the only host of this test.
    networkProxy: { proxy: policy({ allowLocalBinding: true }), policyDecisionTimeoutMs: 300_000 },
  });
  return { client, handle: process.handle ?? "" };
}

describe("network questions in the console", { timeout: 600_000 }, () => {
  const web = createServer((request, response) => response.end(`hello ${request.url}\n`));
  let port = 0;
  let own: Awaited<ReturnType<typeof openBrowser>>;
  before(async () => {
    web.listen(0, "127.0.0.1");
    await once(web, "listening");
    ({ port } = web.address() as AddressInfo);
    own = await openBrowser();
  });
  after(async () => {
    web.close();
    await own[Symbol.asyncDispose]();
  });
  const curl = (host: string, path: string) =>
    `curl -sS --noproxy '' -w 'status %{http_code}\\n' http://${host}:${port}/${path}`;

  test("show command and target, and the first answer wins", async () => {
    using scratch = scratchDirectory();
    const auditFile = secretPath(scratch.path, "audit.jsonl");
    const { server, loginUrl } = await serveConsole("--audit", auditFile);
    await using _ = server;
    const elsewhere = new Elsewhere();
    const script = [
      curl("127.0.0.1", "first"),
      curl("127.0.0.1", "again"),
      curl("localhost", "second"),
      curl("127.0.0.2", "third"),
      "sleep 600",
    ].join("; ");
    const { client, handle } = await startAsking(server.url, script, elsewhere);
    await using __ = client;
    const { page, problems } = await signedIn(own.browser, loginUrl);
    const link = page.getByRole("link", { name: "1 network question" });
    await link.waitFor();
    await sectionLink(page, "Server").click();
    await link.click();
    const card = page.getByRole("region", { name: "Network question" });
    await card.getByRole("heading", { name: `Allow network access to 127.0.0.1:${port}?` }).waitFor();
    await card.getByText("HTTP", { exact: true }).waitFor();
    await card.getByText("curl -sS").waitFor();
    await card.getByText("no rule allows this host").waitFor();
    await card.getByText("“Always” requires a rules file").waitFor();
    assert.equal(await card.getByRole("button", { name: "Always" }).count(), 0);
    for (const size of SIZES) {
      await page.setViewportSize(size);
      await assertNoAxeFaults(page, `a question at ${size.width}`);
      // A question that is higher than the page scrolls down, not to the right, and leaves the state readable.
      assert.ok(await card.evaluate((it) => it.scrollWidth <= it.clientWidth), `the question at ${size.width}`);
      const badge = await page.locator(".bar > .badge").boundingBox();
      assert.ok(badge && badge.width > 60, `the badge is ${badge?.width} px wide at ${size.width}`);
      await assertNoHorizontalScrolling(page);
      await assertDocumentFits(page);
      await keepScreenshot(page, `network-question-${size.width}`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });

    // The keyboard reaches the answers.
    await card.getByRole("button", { name: "Allow once" }).focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await until("the first response", async () => /hello \/first/.test(await screenText(page)));
    await until("the end of the prompt elsewhere", () => elsewhere.prompts[0]?.signal?.aborted === true);
    // The answer covers the process: the next question is about another host.
    await card.getByRole("heading", { name: `localhost:${port}` }).waitFor();
    assert.match(await screenText(page), /hello \/again/);
    await until("the second prompt elsewhere", () => elsewhere.prompts.length === 2);
    assert.deepEqual(
      elsewhere.prompts.map(({ host }) => host),
      ["127.0.0.1", "localhost"],
    );

    // An answer elsewhere closes the card.
    elsewhere.prompts[1]?.answer({ type: "allow" });
    await card.getByRole("heading", { name: `127.0.0.2:${port}` }).waitFor();
    assert.match(await screenText(page), /hello \/second/);
    await card.getByRole("button", { name: "Deny" }).click();
    await until("the denial", async () => /status 403/.test(await screenText(page)));
    await card.waitFor({ state: "detached" });
    await link.waitFor({ state: "detached" });
    await until("the end of the last prompt elsewhere", () => elsewhere.prompts[2]?.signal?.aborted === true);
    assert.deepEqual(problems, []);

    const lines = readFileSync(auditFile, "utf8")
      .trimEnd()
      .split("\n")
      .map((line): Record<string, unknown> => JSON.parse(line))
      .filter(({ event }) => event === "process/question");
    assert.deepEqual(
      lines.map(({ outcome, target, reason, handle: of }) => [outcome, target, reason, of]),
      [
        ["allowed", `127.0.0.1:${port}`, "process by local", handle],
        ["allowed", `localhost:${port}`, "allowed by the client", handle],
        ["refused", `127.0.0.2:${port}`, "deny by local", handle],
      ],
    );
  });

  test("are invisible to guests of a share link", async () => {
    const { server, loginUrl } = await serveConsole();
    await using _ = server;
    const { client, handle } = await startAsking(server.url, curl("127.0.0.1", "x"), new Elsewhere());
    await using __ = client;
    await until("the question", async () => (await client.call("network/questions", {})).questions.length === 1);
    for (const role of ["viewer", "driver"] as const) {
      const { token } = await client.share(handle, { role, ttlMs: 600_000 });
      const guest = await NodeExecServerClient.connectWebSocket({ url: server.url, authToken: token });
      await using ___ = guest;
      await assert.rejects(guest.call("network/questions", {}), /is not allowed: this connection uses a share link/);
      const answer = { questionId: "1", answer: "once" } as const;
      await assert.rejects(guest.call("network/answer", answer), /is not allowed: this connection uses a share link/);
      const page = await own.browser.newPage();
      await page.goto(
        new URL(`/#share=${token}&process=${handle}${role === "viewer" ? "&role=viewer" : ""}`, loginUrl).href,
      );
      await page.getByText("shared process").waitFor();
      await page.getByRole("heading", { name: /curl/ }).waitFor();
      assert.equal(await page.getByRole("region", { name: "Network question" }).count(), 0);
      assert.equal(await page.getByRole("link", { name: /network question/ }).count(), 0);
      await page.close();
    }
  });
});
