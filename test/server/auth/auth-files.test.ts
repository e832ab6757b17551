/** Token and secret files that change while a real server runs, on a manual clock. */

import { mkdtempSync, renameSync, rmSync, truncateSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { AUTH_FILE_CHECK_INTERVAL_MS } from "../../../src/server/auth/auth-file-watcher.ts";
import { serveSigned, signToken, TEST_SECRET } from "../../support/auth/signed-server.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const OLD = "old-token-old-token-old-token-old-token";
const NEW = "new-token-new-token-new-token-new-token";
const OPERATOR = "operator-operator-operator-operator";

/** A server whose token is in a file, with a connection of that token. */
async function serveWithFiles() {
  const directory = mkdtempSync(join(scratch.path, "files-"));
  const [wsTokenFile, operatorTokenFile] = [join(directory, "token"), join(directory, "operator")];
  writeFileSync(wsTokenFile, `${OLD}\n`, { mode: 0o600 });
  writeFileSync(operatorTokenFile, OPERATOR, { mode: 0o600 });
  const { auth, authFiles } = parseAuthFlags({ wsAuth: "capability-token", wsTokenFile, operatorTokenFile });
  const server = await serveSigned({ auth, authFiles });
  const client = await server.connect(OLD);
  const operator = await server.connect(OPERATOR);
  for (const one of [client, operator]) await one.handshake();
  return {
    ...{ ...server, client, operator, directory, wsTokenFile, operatorTokenFile },
    /** Lets the server check its files, so often that it has certainly read a changed file. */
    settle: () => server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS),
  };
}

/** Replaces a file as editors and secret managers do. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.new`, content, { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

describe("a token file", () => {
  test("that is replaced by rename ends the connections of its former token only", async () => {
    await using server = await serveWithFiles();
    replace(server.wsTokenFile, NEW);
    await server.settle();
    await server.client.ended();
    await server.operator.roundTrip();
    await server.rejects(OLD);
    await using next = await server.connect(NEW);
    await next.handshake({ resumeSessionId: server.client.sessionId });
  });

  test("with the same token in another form ends no connection", async () => {
    await using server = await serveWithFiles();
    replace(server.wsTokenFile, OLD);
    await server.settle();
    await server.client.roundTrip();
  });

  test("that changes at each check is read when it no longer changes", async () => {
    await using server = await serveWithFiles();
    for (let length = 1; length <= NEW.length; length++) {
      writeFileSync(server.wsTokenFile, NEW.slice(0, length));
      await server.clock.advance(AUTH_FILE_CHECK_INTERVAL_MS);
      await server.client.roundTrip();
    }
    await server.settle();
    await server.client.ended();
    await using next = await server.connect(NEW);
    await next.handshake();
  });

  for (const [what, change] of Object.entries({
    truncated: (path: string) => truncateSync(path),
    "a directory": (path: string) => {
      unlinkSync(path);
      renameSync(mkdtempSync(`${path}-`), path);
    },
    "the token of the other role": (path: string) => replace(path, OPERATOR),
  })) {
    test(`that is ${what} keeps its last valid token`, async () => {
      await using server = await serveWithFiles();
      change(server.wsTokenFile);
      await server.settle();
      await server.client.roundTrip();
      await using next = await server.connect(OLD);
      await next.handshake();
      rmSync(server.wsTokenFile, { recursive: true });
      replace(server.wsTokenFile, NEW);
      await server.settle();
      await server.client.ended();
    });
  }

  test("of an operator that is too short keeps its last valid token", async () => {
    await using server = await serveWithFiles();
    replace(server.operatorTokenFile, "short");
    await server.settle();
    await server.operator.roundTrip();
  });

  test("that is deleted removes its token, until the file exists again", async () => {
    await using server = await serveWithFiles();
    unlinkSync(server.wsTokenFile);
    await server.settle();
    await server.client.ended();
    await server.operator.roundTrip();
    await server.rejects(OLD);
    unlinkSync(server.operatorTokenFile);
    await server.settle();
    await server.operator.ended();
    await server.rejects(OPERATOR);
    writeFileSync(server.wsTokenFile, OLD);
    await server.settle();
    await using next = await server.connect(OLD);
    await next.handshake();
  });

  test("that is deleted and created again between two checks ends no connection", async () => {
    await using server = await serveWithFiles();
    unlinkSync(server.wsTokenFile);
    await server.clock.advance(AUTH_FILE_CHECK_INTERVAL_MS);
    writeFileSync(server.wsTokenFile, OLD);
    await server.settle();
    await server.client.roundTrip();
  });

  test("is read at once by reloadAuth, as on SIGHUP", async () => {
    await using server = await serveWithFiles();
    replace(server.wsTokenFile, NEW);
    await server.listening.reloadAuth?.();
    await server.client.ended();
  });
});

describe("a secret file", () => {
  test("with a new secret ends the connections of all tokens of the former secret", async () => {
    const wsSharedSecretFile = join(scratch.path, "secret");
    writeFileSync(wsSharedSecretFile, TEST_SECRET, { mode: 0o600 });
    const { auth, authFiles } = parseAuthFlags({ wsAuth: "signed-bearer-token", wsSharedSecretFile });
    await using server = await serveSigned({ auth, authFiles });
    await using client = await server.connect(server.token(600));
    await client.handshake();
    const next = [...TEST_SECRET].reverse().join("");
    replace(wsSharedSecretFile, next);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    await client.ended();
    await server.rejects(server.token(600));
    const token = signToken({ sub: "alice", exp: server.clock.now() / 1000 + 60 }, next);
    await using again = await server.connect(token);
    await again.handshake({ resumeSessionId: client.sessionId });
  });
});

test("ids in the file of revoked tokens end connections, also if another program added them", async () => {
  const revokedTokensFile = join(scratch.path, "shared.revoked");
  await using server = await serveSigned({ revokedTokensFile });
  await using first = await server.connect(server.token(600, { jti: "one" }));
  await first.handshake();
  await using second = await server.connect(server.token(600, { jti: "two" }));
  await second.handshake();
  // An incomplete line of an interrupted write does not hide the next line.
  writeFileSync(revokedTokensFile, `{"tokenId":"tw\nnull\n{"tokenId":"one"}\n`);
  await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
  await first.ended();
  await second.roundTrip();
  unlinkSync(revokedTokensFile);
  await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
  await server.rejects(server.token(600, { jti: "one" }));
});
