import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { AttachedProcess, AttachRole, ExecServerClient } from "../../client/browser.ts";
import type { TerminalSize } from "../../exec/exec-process.ts";
import type { ExitInfo } from "../app/state-badge.ts";
import { TerminalFollower } from "../terminal/terminal-follower.ts";
import { TerminalView } from "../terminal/terminal-view.ts";
import { isDriven, rememberDriven } from "./driven-process.ts";

/** Time for which a note is shown. */
const NOTE_MS = 6_000;

/** Question to a viewer. Enter takes over while it is shown. */
export type Prompt = "watching" | "driverLeft" | null;

export type AttachState =
  | { type: "attaching" }
  | { type: "refused"; reason: string }
  | { type: "attached"; process: AttachedProcess };

export interface AttachOptions {
  client: ExecServerClient;
  handle: string;
  /** Whether the link of a guest, or the user, permits the role of driver. */
  canDrive: boolean;
  container: RefObject<HTMLDivElement | null>;
  /** Changes typed input, for example with a Ctrl key on the page. */
  transform: (typed: Uint8Array) => Uint8Array;
  /** Called when the user leaves the terminal with ctrl-]. */
  onLeave: () => void;
}

const ENTER = 0x0d;
/** The end of the attachment of the last page. A page of the same process attaches after it: both have one id. */
let lastLeft: { handle: string; detached: Promise<unknown> } | null = null;
/** Reports of focus and mouse, which a program requests: no input of the user. */
const REPORT = /^\x1b\[(?:[IO]|<[\d;]+[Mm]|M[\s\S]{3})/;

/** Attaches to a process and connects it to a terminal in `container`. Detaches when the page closes. */
export function useAttachedProcess(options: AttachOptions) {
  const { client, handle, canDrive, container } = options;
  const [state, setState] = useState<AttachState>({ type: "attaching" });
  const [role, setRole] = useState<AttachRole>("viewer");
  const [prompt, setPrompt] = useState<Prompt>(null);
  const [note, setNote] = useState<string | null>(null);
  const [size, setSize] = useState<TerminalSize | null>(null);
  const [end, setEnd] = useState<ExitInfo | null>(null);
  const [hasEarlierOutput, setEarlierOutput] = useState(false);
  const view = useRef<TerminalView | null>(null);
  const follower = useRef<TerminalFollower | null>(null);
  const latest = useRef({ ...options, prompt, end });
  latest.current = { ...options, prompt, end };
  const showError = (error: unknown) => setNote(userMessage(error));
  useEffect(() => {
    if (note === null) return;
    const timer = setTimeout(() => setNote(null), NOTE_MS);
    return () => clearTimeout(timer);
  }, [note]);

  const becameDriver = () => {
    setRole("driver");
    setPrompt(null);
    rememberDriven(handle);
    setNote("you are the driver: keys go to the process, ctrl-] leaves the terminal");
    view.current?.focus();
  };

  const takeOver = async (process: AttachedProcess) => {
    const available = view.current?.useOwnSize() ?? undefined;
    try {
      await process.becomeDriver(available);
      becameDriver();
    } catch (error) {
      view.current?.useDriverSize();
      showError(error);
    }
  };

  /** Focuses the terminal if no other element has the focus. On a phone, that would open the keyboard. */
  const focusIfFree = () => {
    const isPhone = matchMedia("(pointer: coarse)").matches;
    if (document.activeElement === document.body && !isPhone) view.current?.focus();
  };

  const handBack = async (process: AttachedProcess) => {
    try {
      await process.becomeViewer();
      setRole("viewer");
      rememberDriven(null);
      view.current?.useDriverSize();
      setNote("you are a viewer again");
    } catch (error) {
      showError(error);
    }
  };

  const onTyped = (process: AttachedProcess, typed: Uint8Array) => {
    const { transform, prompt: shown, end: ended } = latest.current;
    if (process.role === "driver") void process.write(transform(typed)).catch(showError);
    else if (!canDrive || ended !== null || isReport(typed)) return;
    else if (shown !== null && typed.length === 1 && typed[0] === ENTER) void takeOver(process);
    else setPrompt((current) => current ?? "watching");
  };

  // Enter takes over while the question is shown, also if the focus was on an element that is gone.
  useLayoutEffect(() => {
    if (prompt !== null) focusIfFree();
  }, [prompt]);

  useEffect(() => {
    if (!container.current) return;
    let process: AttachedProcess | null = null;
    let isUnmounted = false;
    const terminal = new TerminalView(container.current, {
      onInput: (typed) => process && onTyped(process, typed),
      onLeave: () => latest.current.onLeave(),
      onAvailableSize: () => {
        if (process?.role !== "driver") return;
        const available = terminal.useOwnSize();
        if (available) void process.resize(available).catch(showError);
      },
      onTop: () => void follower.current?.loadEarlierOutput().catch(showError),
    });
    view.current = terminal;
    const shouldDrive = canDrive && isDriven(handle);
    const ownSize = shouldDrive ? (terminal.useOwnSize() ?? undefined) : undefined;
    const left = lastLeft?.handle === handle ? lastLeft.detached : Promise.resolve();
    const role = shouldDrive ? "driver" : "viewer";
    const attaching = left.then(() => client.attach(handle, { role, size: ownSize, screen: true }));
    const attach = async () => {
      const attached = await attaching;
      if (isUnmounted) return;
      process = attached;
      attached.onRoleChanged = (changed, reason) => {
        setRole(changed);
        rememberDriven(null);
        terminal.useDriverSize();
        setPrompt(null);
        setNote(`${reason}; you are ${changed} now`);
      };
      attached.onDriverChanged = (driver) => {
        if (attached.role === "viewer") setPrompt(driver === "none" ? "driverLeft" : null);
      };
      setState({ type: "attached", process: attached });
      if (attached.role === "driver") becameDriver();
      else {
        terminal.useDriverSize();
        // Typed keys show the question.
        if (canDrive) focusIfFree();
      }
      const listener = { onEnd: setEnd, onSize: setSize, onEarlierOutput: setEarlierOutput };
      follower.current = new TerminalFollower(attached, terminal, listener);
      await follower.current.follow().catch(showError);
    };
    attach().catch((error: unknown) => {
      if (!isUnmounted) setState({ type: "refused", reason: userMessage(error) });
    });
    return () => {
      isUnmounted = true;
      view.current = null;
      follower.current?.close();
      terminal.dispose();
      // The process keeps running. A lost connection has already detached it.
      lastLeft = { handle, detached: attaching.then((attached) => attached.detach()).catch(() => undefined) };
    };
  }, [client, handle]);

  return {
    state,
    role,
    prompt,
    dismissPrompt: () => {
      setPrompt(null);
      view.current?.focus();
    },
    note,
    setNote,
    size,
    end,
    view,
    takeOver,
    handBack,
    loadEarlierOutput: hasEarlierOutput ? () => void follower.current?.loadEarlierOutput().catch(showError) : null,
  };
}

function isReport(typed: Uint8Array): boolean {
  return REPORT.test(String.fromCharCode(...typed.subarray(0, 32)));
}
