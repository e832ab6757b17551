import type { TerminateMode } from "../../exec/exec-process.ts";
import { ConfirmDialog } from "../components/confirm-dialog.tsx";

/** Time between SIGTERM and SIGKILL, as in `procwire kill`. */
export const GRACE_MS = 5_000;

/** Asks how to end a process: SIGTERM first, or SIGKILL at once. */
export function KillDialog({
  command,
  onKill,
  onClose,
}: {
  command: string;
  onKill: (mode: TerminateMode) => void;
  onClose: () => void;
}) {
  return (
    <ConfirmDialog
      title="End this process?"
      actions={[
        { label: "Kill now", tone: "danger", onSelect: () => onKill({ type: "force" }) },
        {
          label: "Terminate",
          tone: "primary",
          onSelect: () => onKill({ type: "graceful", timeoutMs: GRACE_MS }),
        },
      ]}
      onClose={onClose}
    >
      <p class="command clipped">{command}</p>
      <p>
        <strong>Terminate</strong> sends SIGTERM to the process and its descendants, and SIGKILL after {GRACE_MS / 1000}{" "}
        seconds. <strong>Kill now</strong> sends SIGKILL: programs cannot save their work.
      </p>
    </ConfirmDialog>
  );
}
