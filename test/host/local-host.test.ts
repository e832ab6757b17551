import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { describe, test } from "node:test";
import { createLocalHost } from "../../src/host/local-host.ts";

/** Makes the import of a module fail, as without a free descriptor, until it is disposed. */
function failingImport(path: string): Disposable {
  const hooks = registerHooks({
    load: (url, context, next) => {
      if (url.endsWith(path)) throw new Error("no descriptor is free");
      return next(url, context);
    },
  });
  return { [Symbol.dispose]: () => hooks.deregister() };
}

describe("createLocalHost", () => {
  test("imports the code of HTTP requests again after a failed import", async (t) => {
    const host = createLocalHost();
    t.after(() => host.backend[Symbol.asyncDispose]());
    const open = () =>
      host.http.open(
        async () => undefined,
        () => () => undefined,
      );
    const scope = open();
    const request = () => scope.request({ method: "GET", url: "http://127.0.0.1:1/", requestId: "r" }, () => true);
    {
      using _ = failingImport("/http/http-request.ts");
      await assert.rejects(request(), { message: "no descriptor is free" });
      const closed = open();
      const failed = closed.request({ method: "GET", url: "http://127.0.0.1:1/", requestId: "r" }, () => true);
      closed.close();
      await assert.rejects(failed, { message: "no descriptor is free" });
    }
    await assert.rejects(request(), /^RequestError: http\/request failed: error sending request/);
    scope.close();
  });

  test("imports the code of sandboxed files again after a failed import", async (t) => {
    const host = createLocalHost({ noSandbox: true });
    t.after(() => host.backend[Symbol.asyncDispose]());
    const files = host.sandboxedFiles ?? assert.fail();
    const request = { permissions: { type: "managed" }, windowsSandboxLevel: "disabled" };
    {
      using _ = failingImport("/host/sandboxed-files.ts");
      await assert.rejects(files.forSandbox(request, {}), { message: "no descriptor is free" });
    }
    await assert.rejects(files.forSandbox(request, {}), { message: "missing field `file_system`" });
    await files.close();
  });
});
