import { useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { AttachedProcess, AttachRole, ExecServerClient } from "../../client/browser.ts";
import { exportRecording } from "../../client/recording/export-recording.ts";
import { formatBytes, formatCommand } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { saveFile } from "../app/save-file.ts";
import { describeExit } from "../app/state-badge.ts";
import { useMedia } from "../app/use-media.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { Badge } from "../components/badge.tsx";
import { Breadcrumb } from "../components/breadcrumb.tsx";
import { Drawer } from "../components/drawer.tsx";
import { ErrorView } from "../components/error-view.tsx";
import { Menu, type MenuItem } from "../components/menu.tsx";
import { QuestionCard } from "../questions/question-card.tsx";
import type { Questions } from "../questions/use-questions.ts";
import { FindBar } from "../terminal/find-bar.tsx";
import { KeyBar, withCtrl } from "../terminal/key-bar.tsx";
import { KillDialog } from "./kill-dialog.tsx";
import { ProcessConnections } from "./process-connections.tsx";
import { ProcessInputs } from "./process-inputs.tsx";
import { shortCommand } from "./process-rows.ts";
import { ProcessTreeView } from "./process-tree.tsx";
import { SharePanel } from "./share-panel.tsx";
import { useAttachedProcess } from "./use-attached-process.ts";
import { useProcessState } from "./use-process-state.ts";

/** Content of the drawer. */
type Panel = "Share" | "Input history" | "Process tree" | "Network";

/** Page of one process: its terminal, and actions. */
export function ProcessPage({
  client,
  handle,
  guest,
  isReconnecting = false,
  questions,
}: {
  client: ExecServerClient;
  handle: string;
  /** Highest role of a guest, who cannot share the process further. Undefined for a signed-in user. */
  guest?: AttachRole | undefined;
  /** Whether the connection is lost and not resumed yet. */
  isReconnecting?: boolean;
  /** Network questions of the user. Undefined for a guest, who cannot answer. */
  questions?: Questions | undefined;
}) {
  const container = useRef<HTMLDivElement>(null);
  const roleButton = useRef<HTMLButtonElement>(null);
  const [panel, setPanel] = useState<Panel | null>(null);
  const [isFinding, setFinding] = useState(false);
  const [isKilling, setKilling] = useState(false);
  const [isCtrl, setCtrl] = useState(false);
  const hasPanelButtons = useMedia("(min-width: 67rem)");
  const hasSignalButtons = useMedia("(min-width: 56rem)");
  const canDrive = guest !== "viewer";
  const attached = useAttachedProcess({
    client,
    handle,
    canDrive,
    container,
    transform: (typed) => {
      if (!isCtrl) return typed;
      setCtrl(false);
      return withCtrl(typed);
    },
    onLeave: () => roleButton.current?.focus(),
  });
  const { state, role, prompt, note, setNote, size, end, view } = attached;
  const process = state.type === "attached" ? state.process : null;
  const { argv = [], name } = process?.listing() ?? {};
  const command = argv.length === 0 ? handle : shortCommand(argv);
  const isRunning = process !== null && end === null;
  const liveState = useProcessState(client, handle, isRunning);
  usePageTitle(name ?? command);
  if (state.type === "refused") {
    return (
      <div class="refused">
        {guest === undefined && (
          <Breadcrumb parents={[{ label: "Processes", href: toHref({ page: "processes" }) }]} current={handle} />
        )}
        <ErrorView title={`Process ${handle}`} reason={`${state.reason}; the process may have ended`} />
      </div>
    );
  }
  const act = (run: () => Promise<unknown>, done: string | null = null) => {
    run().then(
      () => setNote(done),
      (error: unknown) => setNote(userMessage(error)),
    );
  };
  // A guest has the rights of a driver only while it drives.
  const canSignal = isRunning && (guest === undefined || role === "driver");
  const panels: readonly Panel[] = [
    ...(guest === undefined ? (["Share"] as const) : []),
    "Input history",
    "Process tree",
  ];
  const interrupt = () =>
    act(
      async () => (guest ? process?.signal("interrupt") : client.kill(handle, { signal: "interrupt" })),
      "interrupted",
    );
  const signals: MenuItem[] = canSignal
    ? [
        { label: "Interrupt", onSelect: interrupt },
        { label: "Kill", isDanger: true, onSelect: () => setKilling(true) },
      ]
    : [];
  const items: MenuItem[] = [
    // A phone and a tablet have no space for these buttons.
    ...(hasSignalButtons ? [] : signals),
    ...(hasPanelButtons
      ? []
      : [
          { label: "Find", onSelect: () => setFinding(true) },
          ...panels.map((name) => ({ label: name, onSelect: () => setPanel(name) })),
        ]),
    { label: "Network", detail: "requested hosts, with decisions", onSelect: () => setPanel("Network") },
    ...(attached.loadEarlierOutput ? [{ label: "Load earlier output", onSelect: attached.loadEarlierOutput }] : []),
    {
      label: "Download screen",
      detail: "screen and scrollback, with colors",
      onSelect: () => saveFile(`${handle}.ansi.txt`, view.current?.contents() ?? ""),
    },
    {
      label: "Download recording",
      detail: "asciicast of the retained output, without input",
      onSelect: () => process && act(async () => setNote(await record(process, handle)), note),
    },
  ];
  return (
    <section class={`process ${isRunning && role === "driver" ? "driving" : ""}`} aria-label={`process ${handle}`}>
      <div class="bar">
        {guest === undefined &&
          (hasSignalButtons ? (
            <Breadcrumb parents={[{ label: "Processes", href: toHref({ page: "processes" }) }]} />
          ) : (
            <a class="back" href={toHref({ page: "processes" })} aria-label="Back to the processes">
              ‹
            </a>
          ))}
        <h1 class="command clipped" title={formatCommand(argv)}>
          {command}
        </h1>
        {process !== null && <Badge {...(end === null ? liveState : describeExit(end))} />}
        <output aria-live="polite" class="state muted">
          {[end === null ? role : null, size === null ? null : `${size.cols}×${size.rows}`].filter(Boolean).join(" · ")}
        </output>
        <span class="spacer" />
        {isRunning && canDrive && (
          <div class="group">
            {role === "viewer" ? (
              <button
                ref={roleButton}
                type="button"
                // The question and the drawer have their own primary action.
                class={prompt === null && panel === null ? "primary" : undefined}
                onClick={() => void attached.takeOver(process)}
              >
                Take over
              </button>
            ) : (
              <button ref={roleButton} type="button" onClick={() => void attached.handBack(process)}>
                Hand back
              </button>
            )}
          </div>
        )}
        {hasSignalButtons && signals.length > 0 && (
          <div class="group">
            {signals.map(({ label, isDanger, onSelect }) => (
              <button key={label} type="button" class={isDanger ? "danger" : undefined} onClick={onSelect}>
                {label}
              </button>
            ))}
          </div>
        )}
        {hasPanelButtons && (
          <div class="group">
            <button type="button" aria-pressed={isFinding} onClick={() => setFinding(!isFinding)}>
              Find
            </button>
            {panels.map((name) => (
              <button
                key={name}
                type="button"
                aria-pressed={panel === name}
                onClick={() => setPanel(panel === name ? null : name)}
              >
                {name}
              </button>
            ))}
          </div>
        )}
        <Menu label="More actions" items={items}>
          ⋯
        </Menu>
      </div>
      <div class="frame">
        <div class="terminal" ref={container} />
        {isReconnecting && (
          <p role="status" class="overlay banner">
            Connection lost. Reconnecting… The terminal continues where it stopped.
          </p>
        )}
        {state.type === "attaching" && <p class="overlay notice">Attaching…</p>}
        {isFinding && (
          <FindBar
            view={view.current}
            onClose={() => {
              setFinding(false);
              view.current?.focus();
            }}
          />
        )}
        <div class="overlay messages">
          {questions && <QuestionCard handle={handle} questions={questions} />}
          {!canDrive && isRunning && <p class="message">This link only lets you watch.</p>}
          {note !== null && prompt === null && (
            <p class="message" role="status">
              <span>{note}</span>
              <button type="button" class="plain" aria-label="Dismiss" onClick={() => setNote(null)}>
                ✕
              </button>
            </p>
          )}
          {prompt !== null && isRunning && role === "viewer" && (
            <p class="message question" role="status">
              <span>
                {prompt === "driverLeft" ? "The driver left. Take over?" : "You are watching. Take over?"}{" "}
                <kbd>Enter</kbd>
              </span>
              <button type="button" class="primary" onClick={() => void attached.takeOver(process)}>
                Yes
              </button>
              <button type="button" onClick={attached.dismissPrompt}>
                Keep watching
              </button>
            </p>
          )}
        </div>
        {panel !== null && process !== null && (
          <Drawer key={panel} title={panel} onClose={() => setPanel(null)}>
            {panel === "Share" && <SharePanel client={client} handle={handle} isRunning={isRunning} />}
            {panel === "Input history" && <ProcessInputs process={process} />}
            {panel === "Network" && <ProcessConnections client={client} handle={handle} />}
            {panel === "Process tree" && <ProcessTreeView client={client} handle={handle} />}
          </Drawer>
        )}
      </div>
      {canDrive && (
        <KeyBar
          isCtrl={isCtrl}
          disabledReason={
            role === "driver" && isRunning ? undefined : isRunning ? "take over to type" : "the process has ended"
          }
          onCtrl={() => {
            setCtrl(!isCtrl);
            view.current?.focus();
          }}
          onKey={(bytes) => process && act(() => process.write(bytes), note)}
        />
      )}
      {isKilling && process !== null && (
        <KillDialog
          command={command}
          onKill={(mode) => act(async () => (guest ? process.terminate(mode) : client.kill(handle, { mode })))}
          onClose={() => setKilling(false)}
        />
      )}
    </section>
  );
}

/** Downloads the recording. Returns a notice if output was evicted. */
async function record(process: AttachedProcess, handle: string): Promise<string | null> {
  const { text, missedBytes } = await exportRecording(process);
  saveFile(`${handle}.cast`, text);
  return missedBytes === 0
    ? null
    : `the recording lacks ${missedBytes === null ? "some output" : formatBytes(missedBytes)} that is no longer retained`;
}
