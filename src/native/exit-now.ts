import { loadAddon } from "./addon.ts";

/**
 * Ends this program with this code, whatever its threads do. Node's own exit waits for every thread that is in the
 * middle of a file request, and one of those may wait for ever, for example for a file system that does not answer.
 * Listeners of `exit` are called first, as always. Without the addon, a program with such a request kills itself.
 */
export function exitNow(code: number): never {
  const native = loadAddon();
  // Registered last, so this listener is called last.
  process.on("exit", () => {
    if (native.type === "loaded") native.addon.exitNow(code);
    else if (process.getActiveResourcesInfo().some(isThreadRequest)) process.kill(process.pid, "SIGKILL");
  });
  process.exit(code);
}

/** Node's names for what runs on its threads: `FSReqPromise`, `FileHandleCloseReq`, `GetAddrInfoReqWrap` and others. */
const isThreadRequest = (name: string) => name.includes("Req");
