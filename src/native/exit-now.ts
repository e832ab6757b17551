import { loadBuiltAddon } from "./load-addon.ts";

/**
 * Exits with this code without waiting for threads. Node's own exit waits for every file request in flight, and one may
 * block forever, for example on an unresponsive file system. Listeners of `exit` run first. Without the addon, a process
 * with such a request kills itself.
 */
export function exitImmediately(code: number): never {
  const addon = loadBuiltAddon();
  // Registered last, so that it runs last.
  process.on("exit", () => {
    if (addon) addon.exitNow(code);
    else if (process.getActiveResourcesInfo().some(isThreadRequest)) process.kill(process.pid, "SIGKILL");
  });
  process.exit(code);
}

/** Matches requests on libuv threads: `FSReqPromise`, `FileHandleCloseReq`, `GetAddrInfoReqWrap` and others. */
const isThreadRequest = (name: string) => name.includes("Req");
