import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import { isLoopbackHost } from "../../forward/forward-rules.ts";
import { newDeviceLink } from "../app/sign-in.ts";
import { Alert } from "../components/alert.tsx";
import { CopyField } from "../components/copy-field.tsx";
import { QrCode } from "./qr-code.tsx";

type LinkState = { type: "loading" } | { type: "link"; url: string; until: Date } | { type: "refused"; reason: string };

/** Dialog with a one-time login link for another browser, and its QR code if another device can reach this address. */
export function AddDevice({ onClose }: { onClose: () => void }) {
  const [link, setLink] = useState<LinkState>({ type: "loading" });
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // A layout effect, as in `ConfirmDialog`.
  useLayoutEffect(() => {
    dialog.current?.showModal();
    newDeviceLink().then(
      ({ url, validMs }) => setLink({ type: "link", url, until: new Date(Date.now() + validMs) }),
      (error: unknown) => setLink({ type: "refused", reason: userMessage(error) }),
    );
  }, []);
  const isLocal = isLoopbackHost(location.hostname.replace(/^\[|\]$/g, ""));
  return (
    <dialog ref={dialog} class="add-device" aria-labelledby={titleId} onClose={onClose}>
      <div class="consequences">
        <h2 id={titleId}>Add a device</h2>
        {link.type === "refused" && <Alert message={link.reason} />}
        {link.type === "link" && (
          <>
            <p>
              Open this link in the other browser. It works once, until {link.until.toLocaleTimeString()}, and signs
              that browser in with your rights.
            </p>
            {isLocal ? (
              <p class="muted">
                This address works only on this computer. For another one, see <code>procwire serve --listen</code> or
                run <code>procwire console --connect ssh://HOST</code> there.
              </p>
            ) : (
              <QrCode text={link.url} label="QR code of the link" />
            )}
            <CopyField label="Login link" text={link.url} isPrimary />
          </>
        )}
      </div>
      <div class="actions">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}
