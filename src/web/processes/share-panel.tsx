import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { AttachRole, ExecServerClient, ShareEntry } from "../../client/browser.ts";
import { formatAge, formatQuantity } from "../app/format.ts";
import { handleSubmit } from "../app/handle-submit.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { CopyField } from "../components/copy-field.tsx";
import { shareUrl } from "./share-link.ts";

const HOUR_MS = 3600_000;
const EXPIRIES: readonly [string, number][] = [
  ["15 minutes", HOUR_MS / 4],
  ["1 hour", HOUR_MS],
  ["1 day", 24 * HOUR_MS],
  ["1 week", 7 * 24 * HOUR_MS],
];
const POLL_INTERVAL_MS = 2_000;

type CreatedLink =
  | { type: "none" }
  | { type: "link"; url: string; shareId: string | undefined }
  | { type: "refused"; reason: string };

/** Creates share links of a process, and lists and revokes them. */
export function SharePanel({
  client,
  handle,
  isRunning,
}: {
  client: ExecServerClient;
  handle: string;
  isRunning: boolean;
}) {
  const [role, setRole] = useState<AttachRole>("viewer");
  const [ttlMs, setTtl] = useState(HOUR_MS);
  const [created, setCreated] = useState<CreatedLink>({ type: "none" });
  /** Counts the changes of this page, so that the list is loaded at once. */
  const [changes, setChanges] = useState(0);
  const { value: shares, problem } = usePolled((signal) => client.listShares(handle, { signal }), POLL_INTERVAL_MS, [
    handle,
    changes,
  ]);
  const attempt = async (run: () => Promise<void>) => {
    try {
      await run();
    } catch (error) {
      setCreated({ type: "refused", reason: userMessage(error) });
    }
    setChanges((count) => count + 1);
  };
  const createLink = () =>
    attempt(async () => {
      const { token, shareId } = await client.share(handle, { role, ttlMs });
      setCreated({ type: "link", url: shareUrl({ token, handle, role }), shareId });
    });
  const revoke = (shareId: string) =>
    attempt(async () => {
      await client.revokeShare(handle, shareId);
      if (created.type === "link" && created.shareId === shareId) setCreated({ type: "none" });
    });
  return (
    <>
      <form class="share-form" onSubmit={handleSubmit(() => void createLink())}>
        <label class="choice">
          Guests may
          <select
            value={role}
            onChange={(event) => setRole(event.currentTarget.value === "driver" ? "driver" : "viewer")}
          >
            <option value="viewer">watch</option>
            <option value="driver">watch and type</option>
          </select>
        </label>
        <label class="choice">
          For
          <select value={String(ttlMs)} onChange={(event) => setTtl(Number(event.currentTarget.value))}>
            {EXPIRIES.map(([name, ms]) => (
              <option key={name} value={String(ms)}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <button
          type="submit"
          class="primary"
          disabled={!isRunning}
          title={isRunning ? undefined : "the process has ended"}
        >
          Create link
        </button>
      </form>
      {created.type === "refused" && <Alert message={created.reason} />}
      {created.type === "link" && (
        <CopyField
          key={created.url}
          label="Every holder of this link can use it. It is shown only once."
          text={created.url}
        />
      )}
      <h3>Live links</h3>
      <Alert message={problem} />
      {shares?.length === 0 && <p class="muted">No link grants access to this process.</p>}
      {shares !== null && shares.length > 0 && (
        <ul class="shares">
          {shares.map((share) => (
            <ShareItem key={share.shareId} share={share} onRevoke={() => void revoke(share.shareId)} />
          ))}
        </ul>
      )}
    </>
  );
}

function ShareItem({ share, onRevoke }: { share: ShareEntry; onRevoke: () => void }) {
  return (
    <li>
      <span>
        {share.role === "driver" ? "watch and type" : "watch"}
        <span class="muted">
          {" "}
          · expires in {formatAge(share.expiresAtMs - Date.now())} · {formatQuantity(share.connections, "guest")} · by{" "}
          {share.principal}
        </span>
      </span>
      <button type="button" class="danger" aria-label={`Revoke link ${share.shareId}`} onClick={onRevoke}>
        Revoke
      </button>
    </li>
  );
}
