package io.kop.control;

import java.net.SocketAddress;
import java.security.cert.Certificate;
import org.apache.pulsar.broker.authentication.AuthenticationDataSource;

/** What a client authenticated with, and the subscription that it asks about; either may be missing. */
final class ClientData implements AuthenticationDataSource {
    private static final AuthenticationDataSource NOTHING = new AuthenticationDataSource() { };

    private final AuthenticationDataSource data;
    private final String subscription;

    ClientData(AuthenticationDataSource data, String subscription) {
        this.data = data == null ? NOTHING : data;
        this.subscription = subscription == null || subscription.isEmpty() ? null : subscription;
    }

    @Override
    public boolean hasDataFromTls() {
        return data.hasDataFromTls();
    }

    @Override
    public Certificate[] getTlsCertificates() {
        return data.getTlsCertificates();
    }

    @Override
    public boolean hasDataFromHttp() {
        return data.hasDataFromHttp();
    }

    @Override
    public String getHttpAuthType() {
        return data.getHttpAuthType();
    }

    @Override
    public String getHttpHeader(String name) {
        return data.getHttpHeader(name);
    }

    @Override
    public boolean hasDataFromCommand() {
        return data.hasDataFromCommand();
    }

    @Override
    public String getCommandData() {
        return data.getCommandData();
    }

    @Override
    public boolean hasDataFromPeer() {
        return data.hasDataFromPeer();
    }

    @Override
    public SocketAddress getPeerAddress() {
        return data.getPeerAddress();
    }

    @Override
    public boolean hasSubscription() {
        return subscription != null;
    }

    @Override
    public String getSubscription() {
        return subscription;
    }
}
