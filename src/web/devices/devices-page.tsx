import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { SignedInDevice } from "../../protocol/console/console-device-schemas.ts";
import { formatAge } from "../app/format.ts";
import { listDevices, signOut, signOutDevice, signOutEverywhere } from "../app/sign-in.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { ConfirmDialog } from "../components/confirm-dialog.tsx";
import { AddDevice } from "./add-device.tsx";
import { deviceName } from "./device-name.ts";

const POLL_INTERVAL_MS = 5_000;
/** A device that was used within this time is in use. */
const RECENT_MS = 10_000;

/** The browsers that are signed in as this principal. */
export function DevicesPage() {
  usePageTitle("Devices");
  const [version, setVersion] = useState(0);
  const [dialog, setDialog] = useState<"none" | "add" | "signOutEverywhere">("none");
  const [problem, setProblem] = useState<string | null>(null);
  const { value: devices, problem: loadProblem } = usePolled(listDevices, POLL_INTERVAL_MS, [version]);
  const attempt = (act: () => Promise<void>) =>
    void act().then(
      () => setVersion(version + 1),
      (error: unknown) => setProblem(userMessage(error)),
    );
  const shownProblem = problem ?? loadProblem;
  return (
    <>
      <div class="page-head">
        <h1>Devices</h1>
        <span class="spacer" />
        <div class="actions">
          <button type="button" class="danger" onClick={() => setDialog("signOutEverywhere")}>
            Sign out everywhere
          </button>
          <button type="button" class="primary" onClick={() => setDialog("add")}>
            Add a device
          </button>
        </div>
      </div>
      <Alert message={shownProblem} />
      {devices === null && shownProblem === null && <p class="notice">Loading…</p>}
      {devices !== null && (
        <section class="card" aria-label="Devices">
          <table class="devices cards">
            <thead>
              <tr>
                <th scope="col">Browser</th>
                <th scope="col">Signed in</th>
                <th scope="col">Last used</th>
                <th scope="col">Expires</th>
                <th scope="col">
                  <span class="hidden">Sign out</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {devices.map((device) => (
                <DeviceRow key={device.id} device={device} onSignOut={(act) => attempt(act)} />
              ))}
            </tbody>
          </table>
        </section>
      )}
      {dialog === "add" && (
        <AddDevice
          onClose={() => {
            setDialog("none");
            setVersion(version + 1);
          }}
        />
      )}
      {dialog === "signOutEverywhere" && (
        <ConfirmDialog
          title="Sign out everywhere?"
          actions={[{ label: "Sign out everywhere", tone: "danger", onSelect: () => attempt(signOutEverywhere) }]}
          onClose={() => setDialog("none")}
        >
          <p>
            This signs out {devices?.length ?? "all"} browsers, this one included, and voids unused login links.
            Processes continue. Run <code>procwire console</code> to sign in again.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}

function DeviceRow({ device, onSignOut }: { device: SignedInDevice; onSignOut: (act: () => Promise<void>) => void }) {
  const { id, signedInAtMs, lastUsedAtMs, expiresAtMs, isCurrent } = device;
  const now = Date.now();
  return (
    <tr>
      <td class="browser" title={device.device}>
        {deviceName(device.device)} {isCurrent && <span class="muted">(this browser)</span>}
      </td>
      <td data-title="Signed in" title={new Date(signedInAtMs).toLocaleString()}>
        {formatAge(now - signedInAtMs)} ago
      </td>
      <td data-title="Last used" title={new Date(lastUsedAtMs).toLocaleString()}>
        {now - lastUsedAtMs < RECENT_MS ? "now" : `${formatAge(now - lastUsedAtMs)} ago`}
      </td>
      <td data-title="Expires" title={new Date(expiresAtMs).toLocaleString()}>
        in {formatAge(expiresAtMs - now)}
      </td>
      <td class="number">
        <button type="button" onClick={() => onSignOut(isCurrent ? signOut : () => signOutDevice(id))}>
          Sign out
        </button>
      </td>
    </tr>
  );
}
