import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { PROTOCOL_DOCUMENT, protocolDocument, SANDBOX_EXAMPLE } from "../../scripts/docs/protocol-doc.ts";
import { clientNotifications, methods, serverNotifications, serverRequests } from "../../src/protocol/methods.ts";
import { parseSandboxRequest } from "../../src/sandbox/sandbox-request.ts";

describe("PROTOCOL.md", () => {
  test("matches the method table; `npm run protocol` rewrites it", () => {
    assert.equal(readFileSync(PROTOCOL_DOCUMENT, "utf8"), protocolDocument());
  });

  test("describes every method, request of the server and notification, each once", () => {
    const document = protocolDocument();
    for (const name of Object.keys({ ...methods, ...serverRequests, ...serverNotifications, ...clientNotifications })) {
      assert.equal(document.split(`\n### ${name}\n`).length, 2, name);
    }
  });

  test("shows a sandbox request that the server accepts", () => {
    assert.equal(parseSandboxRequest(JSON.parse(SANDBOX_EXAMPLE)).type, "sandboxed");
  });

  test("has no dead link", () => {
    const document = protocolDocument();
    const headings = new Set([...document.matchAll(/^#+ (.+)$/gm)].map(([, title]) => title?.toLowerCase()));
    for (const [, target] of document.matchAll(/\]\(#([^)]+)\)/g)) assert.ok(headings.has(target), target);
  });
});
