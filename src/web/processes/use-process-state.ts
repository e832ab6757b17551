import type { ExecServerClient } from "../../client/browser.ts";
import { type BadgeText, describeProcess } from "../app/state-badge.ts";
import { usePolled } from "../app/use-polling.ts";

const POLL_INTERVAL_MS = 2_000;

/** Polls the state of a running process, as the list of processes shows it. */
export function useProcessState(client: ExecServerClient, handle: string, isRunning: boolean): BadgeText {
  const { value } = usePolled(
    async (signal) => {
      if (!isRunning) return null;
      const listings = await client.list({ allSessions: true, signal });
      return listings.find((listing) => listing.handle === handle) ?? null;
    },
    POLL_INTERVAL_MS,
    [client, handle, isRunning],
  );
  return value ? describeProcess(value) : { tone: "running", label: "running" };
}
