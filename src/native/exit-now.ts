import { loadAddon } from "./addon.ts";

/**
 * Ends this program with this code, whatever its threads do. Node's own exit waits for every thread that is in the middle
 * of a file request, and one of those may wait for ever: for a file system that does not answer, for example. Who listens
 * for the end is told first, as always. Without the addon, a program that has such a request under way is killed.
 */
export function exitNow(code: number): never {
  const native = loadAddon();
  // Registered last, so it is called last.
  process.on("exit", () => {
    if (native.type === "loaded") native.addon.exitNow(code);
    else if (process.getActiveResourcesInfo().some(isThreadRequest)) process.kill(process.pid, "SIGKILL");
  });
  process.exit(code);
}

/** Node's names for what runs on its threads: `FSReqPromise`, `FileHandleCloseReq`, `GetAddrInfoReqWrap` and their kin. */
const isThreadRequest = (name: string) => name.includes("Req");
