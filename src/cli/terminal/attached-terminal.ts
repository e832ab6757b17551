import { sleep, systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { AttachedProcess } from "../../client/process/attached-process.ts";
import type { ExitStatus } from "../../exec/exec-process.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { AttachedScreen } from "./attached-screen.ts";
import { gapMessage, showOutput } from "./process-output.ts";
import { enterRawMode, localTerminalSize, onSignals } from "./raw-terminal.ts";
import { resetModes } from "./reset-modes.ts";
import { parseViewerKeys, TAKEOVER_KEY } from "./viewer-keys.ts";

/** Signals that detach; the process keeps running. */
const DETACH_SIGNALS = ["SIGTERM", "SIGHUP", "SIGINT"] as const;
type DetachSignal = (typeof DETACH_SIGNALS)[number];

/** Maximum time to draw the last output at the end. */
const CLOSE_TIMEOUT_MS = 1_000;

export type AttachedEnd =
  | { type: "exited"; status: ExitStatus }
  /** The user pressed the detach key, or stdout was closed. */
  | { type: "detached" }
  | { type: "signaled"; signal: DetachSignal };

export interface AttachedTerminalOptions {
  tty: boolean;
  detachKey: number | null;
}

/**
 * Shows an attached process on the local terminal. As driver, it also sends keys and the terminal size. A viewer takes over
 * with one key. Runs until the process ends or the user detaches, then restores the terminal.
 */
export async function runAttached(child: AttachedProcess, options: AttachedTerminalOptions): Promise<AttachedEnd> {
  const ending = Promise.withResolvers<AttachedEnd>();
  const stopSignals = onSignals(DETACH_SIGNALS, (signal) => ending.resolve({ type: "signaled", signal }));
  const isTerminal = options.tty && process.stdout.isTTY;
  const screen =
    isTerminal && child.screen ? new AttachedScreen(child, `arrows scroll, ${TAKEOVER_KEY.name} takes over`) : null;
  const notify = (text: string) =>
    screen ? screen.notify(text) : void standardStream(2).write(`\r\n[${printableText(text)}]\r\n`);
  const stopFollowing = followRole(child, notify, screen);
  const stopSizes = options.tty ? followSizes(child, screen) : () => undefined;
  // Raw mode also for a viewer, so that the detach key works without Enter.
  const leaveRawMode = enterRawMode();
  const keys = new AttachedKeys(child, { detachKey: options.detachKey, notify, screen });
  // Input errors surface through the process or its failure.
  keys.forward(() => ending.resolve({ type: "detached" })).catch(() => undefined);
  let end: AttachedEnd | null = null;
  try {
    const shown = show(child, screen, notify).then(
      (status): AttachedEnd => (status ? { type: "exited", status } : { type: "detached" }),
    );
    end = await Promise.race([shown, ending.promise]);
    return end;
  } finally {
    process.stdin.destroy();
    stopFollowing();
    stopSizes();
    // A terminal that accepts no output, as after ctrl-s, must not prevent the exit.
    const closing = screen?.close({ isRunning: end?.type !== "exited" });
    const lastRow = closing && (await Promise.race([closing, sleep(systemClock, CLOSE_TIMEOUT_MS)]));
    if (isTerminal) standardStream(1).write(resetModes({ isAlternate: screen?.isAlternate ?? false }));
    // The cursor of a running program may be above its content.
    if (lastRow) standardStream(1).write(`\x1b[${lastRow};1H${end?.type === "detached" ? "" : "\r\n"}`);
    leaveRawMode();
    stopSignals();
  }
}

/** Shows the screen, or the retained output, and then all later output. Resolves to null if stdout was closed. */
async function show(
  child: AttachedProcess,
  screen: AttachedScreen | null,
  notify: (text: string) => void,
): Promise<ExitStatus | null> {
  const first = child.screen;
  if (!screen || !first) {
    // The server replies to terminal queries. A reply of this terminal would be a second one, or late.
    const filter = child.size ? new QueryStripper() : null;
    return showOutput(child, { filter, onGap: (bytes) => notify(gapMessage(bytes)) });
  }
  await screen.start(first);
  if (child.role === "viewer" && child.driver === "none") notify(`no driver: ${TAKEOVER_KEY.name} takes over`);
  let status: ExitStatus | null = null;
  for await (const event of child.events({ afterSeq: first.seq, lossless: true })) {
    if (event.type === "output" && !(await screen.draw(event))) return null;
    // The rendered screen contains the effect of the missed output.
    if (event.type === "gap" && event.bytes !== 0) screen.skip();
    if (event.type === "exited") status = event;
    if (event.type === "failed") throw event.error;
  }
  if (!status) throw new Error("the process ended without an exit status");
  return status;
}

/** Notifies the user of changes of role and driver. */
function followRole(child: AttachedProcess, notify: (text: string) => void, screen: AttachedScreen | null): () => void {
  child.onRoleChanged = () => {
    void screen?.redraw();
    notify(`${TAKEOVER_KEY.name} takes over: another client is the driver now, you are a viewer`);
  };
  child.onDriverChanged = (driver) => {
    if (child.role === "driver") return;
    if (driver === "none") notify(`the driver left: ${TAKEOVER_KEY.name} takes over`);
    else screen?.clearNotice();
  };
  return () => {
    child.onRoleChanged = () => undefined;
    child.onDriverChanged = () => undefined;
  };
}

/** Sends the size of the local terminal as driver, and follows the size of the process as viewer. */
function followSizes(child: AttachedProcess, screen: AttachedScreen | null): () => void {
  const onResize = () => {
    const size = localTerminalSize();
    // Ignored: the server may not support resize, or the process may have just exited.
    if (size && child.role === "driver") child.resize(size).catch(() => undefined);
    screen?.resized();
  };
  child.onResized = () => screen?.resized();
  process.stdout.on("resize", onResize);
  return () => {
    child.onResized = () => undefined;
    process.stdout.off("resize", onResize);
  };
}

interface AttachedKeysOptions {
  detachKey: number | null;
  notify: (text: string) => void;
  screen: AttachedScreen | null;
}

/** Keys that the user types at an attached process. */
class AttachedKeys {
  readonly #child: AttachedProcess;
  readonly #options: AttachedKeysOptions;
  /** Set once a viewer's piped input was reported as ignored. */
  #hasReported = false;

  constructor(child: AttachedProcess, options: AttachedKeysOptions) {
    this.#child = child;
    this.#options = options;
  }

  /** Sends typed input up to the detach key. The end of stdin does not detach. */
  async forward(onDetach: () => void): Promise<void> {
    const { detachKey } = this.#options;
    for await (const chunk of process.stdin) {
      const bytes: Uint8Array = chunk;
      const at = detachKey === null ? -1 : bytes.indexOf(detachKey);
      const typed = at < 0 ? bytes : bytes.subarray(0, at);
      if (typed.length > 0) await this.#send(typed);
      if (at >= 0) return onDetach();
    }
  }

  async #send(typed: Uint8Array): Promise<void> {
    if (this.#child.role === "driver") {
      await this.#child.write(typed);
      return;
    }
    const { notify, screen } = this.#options;
    if (!process.stdin.isTTY) {
      if (!this.#hasReported) notify("input ignored: you are a viewer");
      this.#hasReported = true;
      return;
    }
    for (const key of parseViewerKeys(typed)) {
      if (key.type === "takeOver") await this.#takeOver();
      else if (key.type === "scroll" && screen?.isClipped) screen.scroll(key.key);
      else notify(`you are a viewer: ${TAKEOVER_KEY.name} takes over`);
    }
  }

  async #takeOver(): Promise<void> {
    const { notify, screen } = this.#options;
    try {
      await this.#child.becomeDriver(localTerminalSize() ?? undefined);
      screen?.clearNotice();
      await screen?.redraw();
    } catch (error) {
      notify(errorMessage(error));
    }
  }
}
