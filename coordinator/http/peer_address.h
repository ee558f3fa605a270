// Where the client of a connection is. Used by http_session. Pure.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

namespace coppice::coordinator {

// An IPv4 address that is mapped into IPv6, as itself.
inline boost::asio::ip::address Unmapped(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return address;
}

// Without port. "": the connection has ended.
inline std::string PeerAddress(const boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code failed;
  const boost::asio::ip::address peer = Unmapped(socket.remote_endpoint(failed).address());
  return failed ? "" : peer.to_string();
}

// Whether the peer is on this host: over the loopback interface, or over another one with the
// address of this end.
inline bool IsThisHost(const boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code failed;
  const boost::asio::ip::address peer = Unmapped(socket.remote_endpoint(failed).address());
  if (failed) return false;
  return peer.is_loopback() || peer == Unmapped(socket.local_endpoint(failed).address());
}

}  // namespace coppice::coordinator
