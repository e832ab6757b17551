import type { NativeAddon, NativeSocket } from "./addon.ts";

/** The members of a FrameSocket that only call the addon. */
export abstract class NativeFrameSocket {
  protected readonly native: NativeAddon;
  protected readonly socket: NativeSocket;

  constructor(native: NativeAddon, socket: NativeSocket) {
    this.native = native;
    this.socket = socket;
  }

  sendFrame(frame: Buffer): void {
    this.native.sendBytes(this.socket, frame);
  }

  get queuedBytes(): number {
    return this.native.queuedBytes(this.socket);
  }

  get sentBytes(): number {
    return this.native.sentBytes(this.socket);
  }

  get receivedBytes(): number {
    return this.native.receivedBytes(this.socket);
  }

  pause(): void {
    this.native.pauseSocket(this.socket);
  }

  resume(): void {
    this.native.resumeSocket(this.socket);
  }

  end(): void {
    this.native.endSocket(this.socket);
  }
}
