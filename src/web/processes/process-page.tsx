import { useEffect, useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { AttachedProcess, AttachRole, ExecServerClient } from "../../client/browser.ts";
import { exportRecording } from "../../client/recording/export-recording.ts";
import type { ExitStatus, TerminalSize } from "../../exec/exec-process.ts";
import { formatBytes, formatCommand, formatExit } from "../app/format.ts";
import { saveFile } from "../app/save-file.ts";
import { ErrorView } from "../components/error-view.tsx";
import { FindBar } from "../components/find-bar.tsx";
import { Panel } from "../components/panel.tsx";
import { ProcessInputs } from "./process-inputs.tsx";
import { ProcessTreeView } from "./process-tree.tsx";
import { ShareForm } from "./share-form.tsx";
import { TerminalView } from "./terminal-view.ts";

type AttachState =
  | { type: "attaching" }
  | { type: "refused"; reason: string }
  | { type: "attached"; process: AttachedProcess; argv: readonly string[] };

/** Keys that a phone's keyboard lacks. */
const EXTRA_KEYS = [
  ["Esc", "\x1b"],
  ["Tab", "\t"],
  ["Ctrl-C", "\x03"],
  ["Ctrl-D", "\x04"],
  ["←", "\x1b[D"],
  ["↓", "\x1b[B"],
  ["↑", "\x1b[A"],
  ["→", "\x1b[C"],
] as const;

/** Page of one process: live terminal with scrollback, and actions. */
export function ProcessPage({
  client,
  handle,
  guest,
}: {
  client: ExecServerClient;
  handle: string;
  /** Highest role of a guest, who cannot share the process further. Undefined for a signed-in user. */
  guest?: AttachRole | undefined;
}) {
  const isGuest = guest !== undefined;
  const [attached, setAttached] = useState<AttachState>({ type: "attaching" });
  const [role, setRole] = useState<AttachRole>("viewer");
  const [note, setNote] = useState<string | null>(null);
  const [size, setSize] = useState<TerminalSize | null>(null);
  const [end, setEnd] = useState<ExitStatus | null>(null);
  const container = useRef<HTMLDivElement>(null);
  const view = useRef<TerminalView | null>(null);
  const roleButton = useRef<HTMLButtonElement>(null);
  /** The next key is typed with Ctrl. */
  const [isCtrl, setCtrl] = useState(false);
  const keys = useRef((typed: Uint8Array) => typed);
  keys.current = (typed) => {
    if (!isCtrl) return typed;
    setCtrl(false);
    return withCtrl(typed);
  };

  useEffect(() => {
    let isUnmounted = false;
    let process: AttachedProcess | null = null;
    client.attach(handle, { role: "viewer" }).then(
      (opened) => {
        process = opened;
        if (isUnmounted) {
          void opened.detach().catch(() => undefined);
          return;
        }
        opened.onRoleChanged = (changed, reason) => {
          setRole(changed);
          view.current?.useDriverSize();
          setNote(`${reason}; you are ${changed} now`);
        };
        setAttached({ type: "attached", process: opened, argv: opened.listing().argv });
      },
      (error: unknown) => {
        if (!isUnmounted) setAttached({ type: "refused", reason: errorMessage(error) });
      },
    );
    return () => {
      isUnmounted = true;
      // The process keeps running. A lost connection has already detached it.
      void process?.detach().catch(() => undefined);
    };
  }, [client, handle]);

  useEffect(() => {
    if (attached.type !== "attached" || !container.current) return;
    const { process } = attached;
    const showError = (error: unknown) => setNote(errorMessage(error));
    const terminal = new TerminalView(container.current, {
      onInput: (typed) => {
        if (process.role === "driver") void process.write(keys.current(typed)).catch(showError);
        else if (guest !== "viewer") setNote("you are a viewer; take over to type");
      },
      onLeave: () => roleButton.current?.focus(),
      onAvailableSize: () => {
        if (process.role !== "driver") return;
        const available = terminal.useOwnSize();
        if (available) void process.resize(available).catch(showError);
      },
    });
    view.current = terminal;
    void follow(process, terminal, { onEnd: setEnd, onSize: setSize }).catch(showError);
    return () => {
      process.onResized = () => undefined;
      view.current = null;
      terminal.dispose();
    };
  }, [attached]);

  if (attached.type === "attaching") return <p class="notice">Attaching…</p>;
  if (attached.type === "refused") {
    return <ErrorView title={`Process ${handle}`} reason={`${attached.reason}. It may have ended.`} />;
  }
  const { process, argv } = attached;
  const act = (run: () => Promise<unknown>, done?: string) => {
    run().then(
      () => setNote(done ?? null),
      (error: unknown) => setNote(errorMessage(error)),
    );
  };
  const takeOver = () =>
    act(async () => {
      const available = view.current?.useOwnSize() ?? undefined;
      try {
        await process.becomeDriver(available);
      } catch (error) {
        view.current?.useDriverSize();
        throw error;
      }
      setRole("driver");
      view.current?.focus();
    }, "you are the driver: keys go to the process, ctrl-] leaves the terminal");
  const handBack = () =>
    act(async () => {
      await process.becomeViewer();
      setRole("viewer");
      view.current?.useDriverSize();
    }, "you are a viewer again");
  const cannotDrive =
    end !== null ? "the process has ended" : guest === "viewer" ? "this link only lets you watch" : undefined;
  // A guest has the rights of a driver only while it drives.
  const cannotEnd = cannotDrive ?? (isGuest && role === "viewer" ? "take over first" : undefined);
  const cannotType = role === "driver" ? undefined : (cannotDrive ?? "take over to type");
  const interrupt = () => (isGuest ? process.signal("interrupt") : client.kill(handle, { signal: "interrupt" }));
  const kill = () => (isGuest ? process.terminate() : client.kill(handle));
  return (
    <section class="process" aria-label={`process ${handle}`}>
      <div class="bar">
        <h1 class="command">{formatCommand(argv)}</h1>
        <span class="spacer" />
        {role === "viewer" ? (
          <button
            ref={roleButton}
            type="button"
            disabled={cannotDrive !== undefined}
            title={cannotDrive}
            onClick={takeOver}
          >
            Take over
          </button>
        ) : (
          <button ref={roleButton} type="button" onClick={handBack}>
            Hand back
          </button>
        )}
        <ActionButton label="Interrupt" disabledReason={cannotEnd} onClick={() => act(interrupt, "interrupted")} />
        <ActionButton label="Kill" danger disabledReason={cannotEnd} onClick={() => act(kill, "killed")} />
        <FindBar view={() => view.current} />
        <button
          type="button"
          title="screen and scrollback, with colors"
          onClick={() => saveFile(`${handle}.ansi.txt`, view.current?.contents() ?? "")}
        >
          Download screen
        </button>
        <button
          type="button"
          title="asciicast of the retained output, without input"
          onClick={() => void record(process, handle).then(setNote, (error: unknown) => setNote(errorMessage(error)))}
        >
          Download recording
        </button>
      </div>
      <output aria-live="polite" class="state">
        {end ? formatExit(end) : role === "driver" ? "driver" : "viewer"}
        {size === null ? "" : ` · ${size.cols}×${size.rows}`}
        {end === null && guest === "viewer" ? " · this link only lets you watch" : ""}
        {note === null ? "" : ` · ${note}`}
      </output>
      <div class="terminal" ref={container} />
      <div class="panels">
        <Panel title="Input history">
          <ProcessInputs process={process} />
        </Panel>
        {!isGuest && (
          <Panel title="Share">
            <ShareForm client={client} handle={handle} />
          </Panel>
        )}
        <Panel title="Process tree">
          <ProcessTreeView client={client} handle={handle} />
        </Panel>
      </div>
      <div class="keys" role="toolbar" aria-label="Keys">
        <ActionButton
          label="Ctrl"
          shouldKeepFocus
          isPressed={isCtrl}
          disabledReason={cannotType}
          onClick={() => {
            setCtrl(!isCtrl);
            view.current?.focus();
          }}
        />
        {EXTRA_KEYS.map(([name, text]) => (
          <ActionButton
            key={name}
            label={name}
            shouldKeepFocus
            disabledReason={cannotType}
            onClick={() => act(() => process.write(new TextEncoder().encode(text)))}
          />
        ))}
      </div>
    </section>
  );
}

async function follow(
  process: AttachedProcess,
  terminal: TerminalView,
  listener: { onEnd: (end: ExitStatus) => void; onSize: (size: TerminalSize) => void },
): Promise<void> {
  let drawnSeq = 0;
  /** Gives the terminal the size at which the process wrote the next output. */
  const fit = () => {
    const size = process.sizeAt(drawnSeq + 1);
    if (!size) return;
    terminal.resize(size);
    listener.onSize(size);
  };
  process.onResized = fit;
  fit();
  for await (const event of process.events()) {
    switch (event.type) {
      case "output":
        drawnSeq = event.seq - 1;
        fit();
        drawnSeq = event.seq;
        await terminal.draw(event.chunk);
        // A resize may have no output after it.
        fit();
        break;
      case "gap":
        drawnSeq = event.toSeq;
        terminal.gap(`${event.bytes === null ? "some output" : formatBytes(event.bytes)} no longer retained`);
        break;
      case "exited":
        listener.onEnd(event);
        break;
    }
  }
}

/** Downloads the recording. Returns a notice if output was evicted. */
async function record(process: AttachedProcess, handle: string): Promise<string | null> {
  const { text, missedBytes } = await exportRecording(process);
  saveFile(`${handle}.cast`, text);
  return missedBytes === 0
    ? null
    : `the recording lacks ${missedBytes === null ? "some output" : formatBytes(missedBytes)} that is no longer retained`;
}

/** Returns the control character of a letter; other input stays unchanged. */
function withCtrl(typed: Uint8Array): Uint8Array {
  const [key = 0] = typed;
  const isLetter = typed.length === 1 && key >= 0x40 && key < 0x7f;
  return isLetter ? Uint8Array.of(key & 0x1f) : typed;
}

/** Button for an action on the process. `disabledReason` disables it. */
function ActionButton({
  label,
  danger = false,
  isPressed,
  shouldKeepFocus = false,
  disabledReason,
  onClick,
}: {
  label: string;
  danger?: boolean;
  /** Whether a modifier key stays pressed until the next key. */
  isPressed?: boolean;
  /** Keeps the focus in the terminal, so that the on-screen keyboard stays open. */
  shouldKeepFocus?: boolean;
  disabledReason: string | undefined;
  onClick: () => void;
}) {
  return (
    <button
      type="button"
      class={danger ? "danger" : undefined}
      aria-pressed={isPressed}
      disabled={disabledReason !== undefined}
      title={disabledReason}
      onMouseDown={(event) => shouldKeepFocus && event.preventDefault()}
      onClick={onClick}
    >
      {label}
    </button>
  );
}
